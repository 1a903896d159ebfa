#include "app/compare_table.h"

#include <fmt/format.h>

#include <array>
#include <cassert>
#include <charconv>
#include <cmath>
#include <limits>

#include "app/compare_text.h"
#include "base/text.h"
#include "compare/statistics.h"
#include "metrics/pair_metrics.h"

namespace msprobe::app {
namespace {

using compare::CellValue;
using compare::Face;
using compare::Gate;
using compare::Leaf;
using compare::Mode;
using compare::Row;
using compare::StatCell;
using report::Cell;

constexpr std::string_view kNotAvailable = "N/A";
constexpr size_t kMaxColumns = 40;

void Append(std::vector<std::string>& out, std::initializer_list<std::string_view> names) {
  for (const std::string_view n : names) out.emplace_back(n);
}

std::string_view GradText(const Leaf* leaf) {
  if (leaf == nullptr) return kNotAvailable;
  switch (leaf->requires_grad) {
    case Leaf::Grad::kUnknown:
      return kNotAvailable;
    case Leaf::Grad::kFalse:
      return "False";
    case Leaf::Grad::kTrue:
      return "True";
  }
  return kNotAvailable;
}

// A number or NaN, or a text that reads as one.
bool IsOldNumber(const CellValue& cell, double& value) {
  switch (compare::ClassOf(cell, value)) {
    case compare::CellClass::kNumber:
      return true;
    case compare::CellClass::kNan:
      value = std::numeric_limits<double>::quiet_NaN();
      return true;
    case compare::CellClass::kInf:
      value = std::numeric_limits<double>::infinity();
      return true;
    case compare::CellClass::kNegInf:
      value = -std::numeric_limits<double>::infinity();
      return true;
    default:
      return false;
  }
}

// The metrics of a row without figures.
std::string_view GateWord(Gate gate) {
  if (gate == Gate::kShapes) return "shape unmatched";
  return gate == Gate::kNonFinitePositions ? kNotAvailable : "unsupported";
}

// Pairs that 8.3.3 would not have made (compare.md 5.1, 5.3): they have the figures of the new
// face.
bool OldReleaseParts(const Row& row) {
  if (row.dropped_pair) return true;
  if (row.target == nullptr || row.golden == nullptr) return false;
  constexpr std::string_view kWide = "torch.float64";
  return row.target->dtype != row.golden->dtype &&
         (row.target->dtype == kWide || row.golden->dtype == kWide);
}

}  // namespace

std::vector<std::string> CompareColumns(Mode mode, Face face, bool stack, const UserColumns* user,
                                        bool sketch) {
  std::vector<std::string> out;
  Append(out, {"NPU Name", "Bench Name", "NPU Dtype", "Bench Dtype", "NPU Tensor Shape",
               "Bench Tensor Shape", "NPU Requires_grad", "Bench Requires_grad"});
  if (mode == Mode::kTensor) {
    Append(out, {"Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr", "One Thousandth Err Ratio",
                 "Five Thousandths Err Ratio"});
    if (user != nullptr) out.insert(out.end(), user->names.begin(), user->names.end());
  } else if (mode == Mode::kStatistics) {
    Append(out, {"Max diff", "Min diff", "Mean diff", "L2norm diff", "MaxRelativeErr",
                 "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr"});
  } else {
    Append(out, {"NPU MD5", "BENCH MD5"});
  }
  if (mode != Mode::kMd5) {
    Append(out, {"NPU max", "NPU min", "NPU mean", "NPU l2norm", "Bench max", "Bench min",
                 "Bench mean", "Bench l2norm"});
  }
  Append(out, {"Requires_grad Consistent"});
  const bool accuracy = mode == Mode::kTensor && face == Face::kOld;
  Append(out, {accuracy ? "Accuracy Reached or Not" : "Result"});
  if (mode != Mode::kMd5 || face == Face::kNew) Append(out, {"Err_message"});
  if (stack) Append(out, {"NPU_Stack_Info"});
  if (mode == Mode::kTensor) Append(out, {"Data_name"});
  if (sketch) {
    Append(out, {"Sketch EucDist", "Sketch EucDist Bar", "Sketch RelativeErr",
                 "Sketch RelativeErr Bar", "Sketch Cosine", "Sketch Cosine Bar", "Bit Equal"});
  }
  return out;
}

bool ShowsSketch(const compare::Comparison& comparison) {
  return comparison.shows_sketch && comparison.mode != Mode::kTensor;
}

CompareTable::CompareTable(const compare::Comparison& comparison, Face face,
                           const UserColumns* user)
    : comparison_(comparison),
      face_(face),
      user_(user),
      columns_(CompareColumns(comparison.mode, face, comparison.shows_stack, user,
                              ShowsSketch(comparison))),
      scratch_(kMaxColumns) {
  cells_.reserve(columns_.size());
}

void CompareTable::Text(std::string_view borrowed) { cells_.push_back(Cell::Text(borrowed)); }

void CompareTable::Own(std::string text) {
  assert(used_ < scratch_.size());
  scratch_[used_] = std::move(text);
  cells_.push_back(Cell::Text(scratch_[used_++]));
}

void CompareTable::Number(double value) {
  if (std::isnan(value)) {
    Text("Nan");
  } else {
    cells_.push_back(Cell::Double(value));
  }
}

// Integers beyond 64 bits keep all their digits in csv; a workbook has doubles only.
void CompareTable::Value(const CellValue& value) {
  switch (value.kind()) {
    case CellValue::Kind::kNone:
      return Text("None");
    case CellValue::Kind::kUnknown:
      return Text(kNotAvailable);
    case CellValue::Kind::kBool:
      cells_.push_back(Cell::Bool(value.as_bool()));
      return;
    case CellValue::Kind::kInt:
      cells_.push_back(Cell::Int(value.as_int()));
      return;
    case CellValue::Kind::kDouble:
      return Number(value.as_double());
    case CellValue::Kind::kText:
      return Text(value.text());
    case CellValue::Kind::kBigInt:
      break;
  }
  const std::string_view digits = value.text();
  uint64_t u = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), u);
  if (code == std::errc() && end == digits.data() + digits.size()) {
    cells_.push_back(Cell::Uint(u));
  } else {
    Text(digits);
  }
}

// The eight cells of the new face are all text (compare.md 8.2).
void CompareTable::StatText(const StatCell& cell) {
  switch (cell.kind) {
    case StatCell::Kind::kNumber:
      if (face_ == Face::kOld) return Number(cell.value);
      return Own(PyFloatRepr(cell.value));
    case StatCell::Kind::kPercent:
      return Own(PyFloatRepr(cell.value) + "%");
    case StatCell::Kind::kZeroText:
      return Text("0");
    case StatCell::Kind::kNan:
      return Text("Nan");
    case StatCell::Kind::kInf:
      return Text("inf");
    case StatCell::Kind::kNegInf:
      return Text("-inf");
    case StatCell::Kind::kNotAvailable:
      return Text(kNotAvailable);
    case StatCell::Kind::kDiff:
      return Text("Diff");
  }
}

void CompareTable::AddStart(const Row& row) {
  const std::string_view unknown = face_ == Face::kOld ? "None" : kNotAvailable;
  const auto pair = [&](auto get) {
    Text(row.target == nullptr ? kNotAvailable : get(*row.target));
    Text(row.golden == nullptr ? kNotAvailable : get(*row.golden));
  };
  pair([](const Leaf& leaf) { return std::string_view(leaf.name); });
  pair([&](const Leaf& leaf) { return leaf.is_null ? unknown : std::string_view(leaf.dtype); });
  pair([&](const Leaf& leaf) { return leaf.is_null ? unknown : std::string_view(leaf.shape); });
  Text(GradText(row.target));
  Text(GradText(row.golden));
}

void CompareTable::AddTensor(const Row& row) {
  const metrics::PairMetrics& m = *row.metrics;
  if (row.gate == Gate::kZeroDim) {
    Text("unsupported");
    Text("unsupported");
    Number(metrics::Round12(m.max_abs));
    Number(metrics::Round12(m.max_rel));
    Text("unsupported");
    Text("unsupported");
    return;
  }
  if (row.gate != Gate::kCompared) {
    for (int i = 0; i < 6; ++i) Text(GateWord(row.gate));
    return;
  }
  using metrics::CosineCase;
  switch (m.cosine_case) {
    case CosineCase::kValue:
      Number(metrics::RoundCosine(m.cosine));
      break;
    case CosineCase::kBothZero:
      Number(1.0);
      break;
    case CosineCase::kOneElement:
      Text("unsupported");
      break;
    case CosineCase::kTargetZero:
    case CosineCase::kGoldenZero:
    case CosineCase::kNan:
      Text("Nan");
      break;
  }
  Number(m.euclidean);
  Number(metrics::Round12(m.max_abs));
  Number(metrics::Round12(m.max_rel));
  Number(metrics::Round12(m.below_thousandth));
  Number(metrics::Round12(m.below_five_thousandths));
}

void CompareTable::AddUser(size_t index) {
  const std::vector<UserCell>& row = user_->rows[index];
  for (size_t k = 0; k < user_->names.size(); ++k) {
    if (row.empty()) {
      Text(GateWord(comparison_.rows[index].gate));
    } else if (!row[k].text.empty()) {
      Text(row[k].text);
    } else {
      Number(row[k].number);
    }
  }
}

// The old face's differences are numbers and its relative errors percent texts (compare.md 8.1).
void CompareTable::AddOldStatistics(const Row& row) {
  struct Pair {
    bool numbers = false;
    double difference = 0, golden = 0;
  };
  std::array<Pair, 4> pairs;
  const compare::StatCells cells = compare::StatisticsCells(row);
  if (row.target != nullptr && row.golden != nullptr) {
    const std::array<const CellValue*, 4> n = {&row.target->max, &row.target->min,
                                               &row.target->mean, &row.target->norm};
    const std::array<const CellValue*, 4> b = {&row.golden->max, &row.golden->min,
                                               &row.golden->mean, &row.golden->norm};
    for (size_t i = 0; i < pairs.size(); ++i) {
      double x = 0, y = 0;
      pairs[i].numbers = IsOldNumber(*n[i], x) && IsOldNumber(*b[i], y);
      pairs[i].golden = y;
      // The engine subtracts integers exactly.
      pairs[i].difference =
          cells.diff[i].kind == StatCell::Kind::kNumber ? cells.diff[i].value : x - y;
    }
  }
  for (const Pair& p : pairs) p.numbers ? Number(p.difference) : Text(kNotAvailable);
  for (const Pair& p : pairs) {
    if (p.numbers && std::isnan(p.difference)) {
      Text("Nan");
    } else if (p.numbers && p.golden != 0) {
      Own(PyFloatRepr(std::abs(p.difference / p.golden * 100)) + "%");
    } else {
      Text(kNotAvailable);
    }
  }
}

void CompareTable::AddStatistics(const Row& row) {
  if (face_ == Face::kOld && !OldReleaseParts(row)) return AddOldStatistics(row);
  const compare::StatCells cells = compare::StatisticsCells(row);
  for (const StatCell& cell : cells.diff) StatText(cell);
  for (const StatCell& cell : cells.relative) StatText(cell);
}

void CompareTable::AddStats(const Leaf* leaf) {
  if (leaf == nullptr) {
    for (int i = 0; i < 4; ++i) Text(kNotAvailable);
    return;
  }
  Value(leaf->max);
  Value(leaf->min);
  Value(leaf->mean);
  Value(leaf->norm);
}

void CompareTable::AddEnd(const Row& row) {
  const Mode mode = comparison_.mode;
  cells_.push_back(Cell::Bool(row.grad_consistent));
  const std::string_view verdict = VerdictText(row, mode, face_);
  if (verdict.empty()) {
    cells_.emplace_back();
  } else {
    Text(verdict);
  }
  if (mode != Mode::kMd5 || face_ == Face::kNew) {
    std::string message = ErrMessage(row, mode, face_);
    if (message.empty()) {
      cells_.emplace_back();
    } else {
      Own(std::move(message));
    }
  }
  if (comparison_.shows_stack) {
    const std::vector<std::string>* stack =
        row.first_of_entry && row.target != nullptr ? comparison_.Stack(*row.target) : nullptr;
    if (stack == nullptr) {
      Text(kNotAvailable);
    } else {
      if (stack != last_stack_) {
        last_stack_ = stack;
        last_stack_text_.assign(1, '[');
        for (const std::string& line : *stack) {
          if (last_stack_text_.size() > 1) last_stack_text_ += ", ";
          last_stack_text_ += PyStringRepr(line);
        }
        last_stack_text_ += ']';
      }
      Text(last_stack_text_);
    }
  }
  if (mode == Mode::kTensor) {
    Own(fmt::format("[{}, {}]", PyStringRepr(DataName(row.target)),
                    PyStringRepr(DataName(row.golden))));
  }
}

// A relative distance below the floor of float32 slots is a bound, and the bits alone can be equal.
void CompareTable::AddSketch(const compare::SketchPair& sketch) {
  if (!sketch.distance) {
    for (int i = 0; i < 6; ++i) Text(kNotAvailable);
  } else {
    const metrics::SketchDistance& d = *sketch.distance;
    Number(d.distance);
    Number(d.distance_bar);
    if (d.below_floor) {
      Text("< 1.5e-7");
      Text(kNotAvailable);
    } else {
      Number(d.relative);
      Number(d.relative_bar);
    }
    Number(metrics::RoundCosine(d.cosine));
    Number(d.cosine_bar);
  }
  using Bits = compare::SketchPair::Bits;
  if (sketch.bits == Bits::kUnknown) return Text(kNotAvailable);
  cells_.push_back(Cell::Bool(sketch.bits == Bits::kEqual));
}

std::span<const Cell> CompareTable::Cells(size_t index) {
  const Row& row = comparison_.rows[index];
  cells_.clear();
  used_ = 0;
  AddStart(row);
  if (comparison_.mode == Mode::kTensor) AddTensor(row);
  if (comparison_.mode == Mode::kTensor && user_ != nullptr) AddUser(index);
  if (comparison_.mode == Mode::kStatistics) AddStatistics(row);
  if (comparison_.mode == Mode::kMd5) {
    Text(row.target == nullptr ? kNotAvailable : std::string_view(row.target->md5));
    Text(row.golden == nullptr ? kNotAvailable : std::string_view(row.golden->md5));
  } else {
    AddStats(row.target);
    AddStats(row.golden);
  }
  AddEnd(row);
  if (ShowsSketch(comparison_)) AddSketch(*row.sketch);
  assert(cells_.size() == columns_.size());
  return cells_;
}

report::Mark CompareTable::MarkOf(size_t index) const {
  const Row& row = comparison_.rows[index];
  if (row.red) return report::Mark::kError;
  return row.yellow ? report::Mark::kWarning : report::Mark::kNone;
}

Result<std::vector<std::string>> CompareTable::WriteTo(report::TableWriter& writer,
                                                       const CancelToken* cancel) {
  MSPROBE_TRY(writer.Begin(columns_));
  for (size_t i = 0; i < comparison_.rows.size(); ++i) {
    if (cancel != nullptr && cancel->cancelled()) {
      return Error(ErrorCode::kCancelled, "interrupted while the report was written");
    }
    MSPROBE_TRY(writer.Row(Cells(i), MarkOf(i)));
  }
  return writer.Finish();
}

}  // namespace msprobe::app
