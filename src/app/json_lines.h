// What every `--json FILE` has in common: rows as lines of JSON, whole or not at all.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/result.h"

namespace msprobe::app {

inline constexpr std::string_view kStandardOutput = "-";

// Lines that appear with Commit(): under their path, or at once on standard output for "-". Not
// thread-safe.
class JsonLines {
 public:
  // Makes the folder of `path`. "" takes lines and keeps none. Errors: those of AtomicFile, so that
  // a folder, device or pipe is never replaced.
  static Result<JsonLines> Create(const std::string& path);

  bool wanted() const { return file_.has_value(); }
  // A name that others may write the lines to before Commit(); "" when none are wanted.
  std::string temporary_path() const { return file_ ? file_->temporary_path() : ""; }
  Status Write(std::string_view lines);
  // So that temporary_path() holds all lines.
  Status Flush();
  Status Commit();

 private:
  JsonLines() = default;
  std::optional<AtomicFile> file_;
  bool to_stdout_ = false;
};

// Rows of a csv file that this program wrote, as lines: row (0-based), entry, verdict (pass,
// warning, error, skip), then every column under `keys`. Figures are numbers; NaN and infinities
// are the texts nan, inf and -inf; blank cells are "". The apostrophe that guards spreadsheets is
// taken off. Errors: those of ReadCsvRows and Write; kMalformed when the file has another number of
// columns.
Status AddCsvRows(const std::string& csv, std::span<const std::string_view> keys, JsonLines& out);

}  // namespace msprobe::app
