#include "app/json_rows.h"

#include <cmath>

#include "app/compare_table.h"
#include "app/item_stream.h"
#include "base/text.h"

namespace msprobe::app {

using compare::State;

std::string_view StateName(State state) {
  switch (state) {
    case State::kInput:
      return "input";
    case State::kOutput:
      return "output";
    case State::kParameters:
      return "parameters";
    case State::kParametersGrad:
      return "parameters_grad";
    case State::kDebug:
      break;
  }
  return "debug";
}

std::string_view NeutralVerdict(const compare::Row& row, compare::Face face) {
  if (row.uncompared) return "unmatched";
  if (face == compare::Face::kOld) {
    if (row.accuracy == compare::OldAccuracy::kNo || row.result == compare::OldResult::kDifferent) {
      return "error";
    }
    return row.result == compare::OldResult::kWarning ? "warning" : "pass";
  }
  switch (row.verdict) {
    case compare::Verdict::kPass:
      return "pass";
    case compare::Verdict::kWarning:
      return "warning";
    case compare::Verdict::kError:
      return "error";
    case compare::Verdict::kUnmatched:
      break;
  }
  return "unmatched";
}

void WriteJsonCell(json::Writer& w, const report::Cell& cell, bool strict) {
  switch (cell.kind) {
    case report::Cell::Kind::kEmpty:
      w.String("");
      return;
    case report::Cell::Kind::kText:
      w.String(cell.text);
      return;
    case report::Cell::Kind::kDouble:
      if (strict && !std::isfinite(cell.d)) {
        w.String(PyFloatRepr(cell.d));
      } else {
        w.Double(cell.d);
      }
      return;
    case report::Cell::Kind::kInt:
      w.Int(cell.i);
      return;
    case report::Cell::Kind::kUint:
      w.Uint(cell.u);
      return;
    case report::Cell::Kind::kBool:
      w.Bool(cell.b);
      return;
  }
}

Result<std::unique_ptr<JsonRows>> JsonRows::Create(const std::string& path) {
  MSPROBE_ASSIGN(JsonLines file, JsonLines::Create(path));
  return std::unique_ptr<JsonRows>(new JsonRows(std::move(file)));
}

Status JsonRows::Add(const RankJob& job, const Rows& rows, const CancelToken* cancel) {
  const compare::Comparison& comparison = rows.comparison;
  const compare::Face face = rows.face;
  constexpr size_t kPiece = 1 << 20;
  const std::lock_guard lock(mutex_);
  CompareTable table(comparison, face, rows.user);
  std::string text;
  for (size_t i = 0; i < comparison.rows.size(); ++i) {
    if (cancel != nullptr && cancel->cancelled()) {
      return Error(ErrorCode::kCancelled, "interrupted while rows were written");
    }
    const compare::Row& row = comparison.rows[i];
    const compare::Leaf& leaf = row.target != nullptr ? *row.target : *row.golden;
    const auto cells = table.Cells(i);
    json::Writer w(text);
    w.StartObject();
    w.Key("step").String(job.step);
    w.Key("rank").String(job.rank);
    w.Key("row").Uint(i);
    w.Key("entry").String(comparison.EntryName(leaf, row.target == nullptr));
    w.Key("state").String(StateName(leaf.state));
    w.Key("verdict").String(NeutralVerdict(row, face));
    for (size_t c = 0; c < cells.size(); ++c) {
      const std::string& column = table.columns()[c];
      w.Key(column);
      if (column == "Err_message" && face == compare::Face::kNew) {
        w.Raw(cells[c].text);
      } else {
        WriteJsonCell(w, cells[c], true);
      }
    }
    w.EndObject();
    text += '\n';
    if (text.size() < kPiece) continue;
    MSPROBE_TRY(file_.Write(text));
    text.clear();
  }
  return file_.Write(text);
}

Status JsonRows::Append(std::string_view lines) {
  const std::lock_guard lock(mutex_);
  return file_.Write(lines);
}

Status JsonRows::CopyTo(JsonRows& out) {
  const std::lock_guard lock(mutex_);
  MSPROBE_TRY(file_.Flush());
  return CopyBlocks(file_.temporary_path(),
                    [&](std::string_view block) { return out.Append(block); });
}

Status JsonRows::Commit() { return file_.Commit(); }

}  // namespace msprobe::app
