#include "app/json_lines.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <vector>

#include "app/json_rows.h"
#include "base/text.h"
#include "json/json.h"
#include "report/table.h"

namespace msprobe::app {
namespace {

using report::Cell;

// Text in whatever file has it; all other columns are figures.
bool IsText(std::string_view key) {
  static constexpr std::array<std::string_view, 8> kTexts = {
      "API Name", "Bench Dtype", "DEVICE Dtype", "Shape",
      "Status",   "Message",     "Algorithm",    "Final result"};
  return key.ends_with(" verdict") || std::find(kTexts.begin(), kTexts.end(), key) != kTexts.end();
}

std::string_view Unguarded(std::string_view text) {
  const bool guarded = text.starts_with('\'') && report::LooksExecutable(text.substr(1));
  return guarded ? text.substr(1) : text;
}

Cell ValueCell(std::string_view text, std::string_view key) {
  if (text.find_first_not_of(' ') == std::string_view::npos) return {};
  double value = 0;
  if (!IsText(key) && ParsePyFloat(text, value)) return Cell::Double(value);
  return Cell::Text(Unguarded(text));
}

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

class Converter final : public report::CsvRows {
 public:
  Converter(std::span<const std::string_view> keys, JsonLines& out) : keys_(keys), out_(out) {
    for (size_t i = 0; i < keys.size(); ++i) {
      if (keys[i] == "Status" || keys[i] == "Final result") verdict_ = i;
    }
  }
  Status Header(std::span<const std::string> columns) override {
    if (columns.size() == keys_.size()) return {};
    return Error(ErrorCode::kMalformed,
                 fmt::format("has {} columns, not {}", columns.size(), keys_.size()));
  }
  Status Row(std::span<const std::string> cells, uint32_t /*line*/) override {
    std::string text;
    json::Writer w(text);
    w.StartObject();
    w.Key("row").Uint(row_++);
    w.Key("entry").String(Unguarded(cells[0]));
    w.Key("verdict").String(Lower(cells[verdict_]));
    for (size_t i = 0; i < keys_.size(); ++i) {
      w.Key(keys_[i]);
      WriteJsonCell(w, ValueCell(cells[i], keys_[i]), true);
    }
    w.EndObject();
    return out_.Write(text + "\n");
  }

 private:
  std::span<const std::string_view> keys_;
  JsonLines& out_;
  size_t verdict_ = 0;
  uint64_t row_ = 0;
};

// The whole of `path` to standard output.
Status Show(const std::string& path) {
  constexpr uint64_t kPiece = 1 << 20;
  MSPROBE_ASSIGN(const InputFile file, InputFile::Open(path));
  std::string piece;
  for (uint64_t at = 0; at < file.size(); at += piece.size()) {
    piece.resize(std::min(kPiece, file.size() - at));
    MSPROBE_TRY(file.ReadAt(at, std::as_writable_bytes(std::span(piece))));
    MSPROBE_TRY(WriteAll(STDOUT_FILENO, piece));
  }
  return {};
}

}  // namespace

Result<JsonLines> JsonLines::Create(const std::string& path) {
  JsonLines out;
  if (path.empty()) return out;
  out.to_stdout_ = path == kStandardOutput;
  std::string target = path;
  if (out.to_stdout_) {
    std::error_code failed;
    const std::filesystem::path folder = std::filesystem::temp_directory_path(failed);
    target = JoinPath(failed ? "/tmp" : folder.string(), "msprobe_rows");
  } else {
    MSPROBE_TRY(CreateDirectories(DirName(path)));
  }
  MSPROBE_ASSIGN(out.file_, AtomicFile::Create(target));
  return out;
}

Status JsonLines::Write(std::string_view lines) { return file_ ? file_->Write(lines) : Status(); }

Status JsonLines::Flush() { return file_ ? file_->Flush() : Status(); }

Status JsonLines::Commit() {
  if (!file_) return {};
  if (!to_stdout_) return file_->Commit();
  MSPROBE_TRY(file_->Flush());
  const Status shown = Show(file_->temporary_path());
  file_.reset();
  return shown;
}

Status AddCsvRows(const std::string& csv, std::span<const std::string_view> keys, JsonLines& out) {
  if (!out.wanted()) return {};
  Converter converter(keys, out);
  return report::ReadCsvRows(csv, converter);
}

}  // namespace msprobe::app
