// `--json FILE`: every row of a comparison as one JSON object on a line of its own.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "app/compare_inputs.h"
#include "app/json_lines.h"
#include "app/user_metrics.h"
#include "base/result.h"
#include "compare/compare.h"
#include "json/json.h"
#include "report/table.h"

namespace msprobe::app {

// Keys: step, rank, row (0-based), entry, state, verdict, then every column of the report under its
// name; strict JSON: infinities are the texts "inf" and "-inf", Err_message of the new face is a
// list. The rows of a rank stay together. The file appears with Commit().
class JsonRows {
 public:
  // Errors: those of JsonLines.
  static Result<std::unique_ptr<JsonRows>> Create(const std::string& path);
  // Thread-safe.
  struct Rows {
    const compare::Comparison& comparison;
    compare::Face face;
    const UserColumns* user;  // may be null
  };
  Status Add(const RankJob& job, const Rows& rows, const CancelToken* cancel);
  // Lines that another JsonRows made.
  Status Append(std::string_view lines);
  // Appends all lines so far to another. Not for standard output.
  Status CopyTo(JsonRows& out);
  Status Commit();

 private:
  explicit JsonRows(JsonLines file) : file_(std::move(file)) {}
  std::mutex mutex_;
  JsonLines file_;
};

// "pass", "warning", "error", "unmatched", whatever words the face has for them.
std::string_view NeutralVerdict(const compare::Row& row, compare::Face face);
// "input", "output", "parameters", "parameters_grad", "debug".
std::string_view StateName(compare::State state);
// A cell as a JSON value; `strict`: no bare NaN and Infinity.
void WriteJsonCell(json::Writer& w, const report::Cell& cell, bool strict);

}  // namespace msprobe::app
