#include "app/compare_text.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "base/text.h"
#include "json/json.h"

namespace msprobe::app {
namespace {

using compare::Face;
using compare::Gate;
using compare::Mode;
using compare::Row;

constexpr std::string_view kZeroDimNote =
    "This is type of 0-d tensor, can not calculate 'Cosine', 'EucDist', 'One Thousandth Err Ratio' "
    "and "
    "'Five Thousandths Err Ratio'. ";
constexpr std::string_view kNoBench = "No bench data matched.";
constexpr std::string_view kGradDiffers = "Requires_grad inconsistent. ";
constexpr std::string_view kDoubleCheck = "Need double check api accuracy. ";
constexpr std::string_view kFuzzyNote =
    " Fuzzy matching data, the comparison accuracy may be affected.";
constexpr std::string_view kDtypeDiffers = "Dtype of NPU and bench tensor do not match.";

std::string UnreadableText(const Row& row, Face face) {
  const std::string_view target = DataName(row.target);
  const std::string_view golden = DataName(row.golden);
  std::string out = "Dump file: ";
  if (face == Face::kOld) {
    out += fmt::format("[{}, {}]", PyStringRepr(target), PyStringRepr(golden));
  } else {
    out.append(target).append(" or ").append(golden);
  }
  return out += " not found or read failed.";
}

std::string Repeated(const std::string& text, int times) {
  std::string out;
  out.reserve(text.size() * static_cast<size_t>(times));
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

// Upstream doubles the message with every metric that is `unsupported`: Cosine and EucDist before,
// the two ratios after the notes of MaxAbsErr and MaxRelativeErr (compare.md 7.4).
std::string ZeroDimText(const Row& row) {
  const std::string before = Repeated(std::string(kZeroDimNote), 4);
  return Repeated(before + NonFiniteNotes(*row.metrics), 4);
}

std::string OldTensorMessage(const Row& row) {
  std::string out;
  if (row.golden == nullptr || row.dropped_pair) out = kNoBench;
  if (!row.grad_consistent) out = kGradDiffers;
  if (row.gate == Gate::kZeroDim) {
    out += ZeroDimText(row);
  } else {
    out += GateText(row, Face::kOld);
    if (row.gate == Gate::kCompared) {
      if (row.dtype_differs) out += kDtypeDiffers;
      out += MetricNotes(*row.metrics);
    }
  }
  if (row.fuzzy && row.golden != nullptr) out += kFuzzyNote;
  return out;
}

std::string OldStatisticsMessage(const Row& row) {
  std::string out;
  if (row.gate == Gate::kNoTargetRow) return GateText(row, Face::kOld);
  if (row.golden == nullptr || row.dropped_pair) out = kNoBench;
  if (row.result == compare::OldResult::kWarning) out += kDoubleCheck;
  if (!row.grad_consistent) out += kGradDiffers;
  return out;
}

// Reasons of the new face that no rule text says: only where the verdict would otherwise be
// unexplained.
void AddOwnReasons(const Row& row, Mode mode, std::vector<std::string>& list) {
  if (row.verdict == compare::Verdict::kPass) return;
  if (row.verdict != compare::Verdict::kUnmatched && !list.empty()) return;
  if (mode == Mode::kTensor && row.gate == Gate::kUnreadable) {
    list.push_back(UnreadableText(row, Face::kNew));
    if (!row.unreadable->empty()) list.push_back(*row.unreadable);
  } else if (row.gate != Gate::kCompared && row.gate != Gate::kZeroDim &&
             row.gate != Gate::kBothEmpty) {
    list.push_back(GateText(row, Face::kNew));
  } else if (row.verdict == compare::Verdict::kUnmatched) {
    if (row.golden == nullptr) {
      list.emplace_back("Bench api/module unmatched.");
    } else {
      list.emplace_back(NotComparedReason(row, mode));
    }
  } else if (!row.grad_consistent) {
    list.emplace_back("The Required_Grad of NPU and Bench are inconsistent");
  }
}

std::string NewMessage(const Row& row, Mode mode) {
  std::vector<std::string> list;
  for (const compare::Rule rule : row.rules) list.emplace_back(compare::RuleText(rule));
  AddOwnReasons(row, mode, list);
  for (const compare::Finding& f : row.findings) list.push_back(compare::FindingText(f));
  std::string out = "[";
  for (const std::string& text : list) {
    if (out.size() > 1) out += ", ";
    json::AppendString(out, text);
  }
  return out += "]";
}

}  // namespace

std::string_view DataName(const compare::Leaf* leaf) {
  if (leaf == nullptr) return "N/A";
  return leaf->data_name.empty() ? std::string_view("-1") : std::string_view(leaf->data_name);
}

std::string GateText(const Row& row, Face face) {
  switch (row.gate) {
    case Gate::kCompared:
      return {};
    case Gate::kNoTargetFile:
      return "NPU does not have data file.";
    case Gate::kNoGoldenFile:
      return "Bench does not have data file.";
    case Gate::kNoGoldenRow:
      return "Bench api/module unmatched.";
    case Gate::kUnreadable:
      return UnreadableText(row, face);
    case Gate::kEmpty:
      return "This is empty data, can not compare.";
    case Gate::kShapes:
      return "Shape of NPU and bench tensor do not match. Skipped.";
    case Gate::kZeroDim:
      return std::string(kZeroDimNote);
    case Gate::kNotFloat:
      return "Data is unreadable.";
    case Gate::kNonFinitePositions:
      return "The position of inf or nan in NPU and bench Tensor do not match.";
    case Gate::kNoTargetRow:
      return "NPU api/module unmatched.";
    case Gate::kDTypes:
      return "The dtypes of NPU and Bench are of different kinds, not compared.";
    case Gate::kNoValues:
      return "Nothing was recorded to compare. " + *row.unreadable + ".";
    case Gate::kEmptyGolden:
      return "The Bench tensor is empty, that of NPU is not, can not compare.";
    case Gate::kBothEmpty:
      return {};
    case Gate::kNotReached:
      return "The comparison was interrupted before this row.";
    case Gate::kChecksumKinds:
      return "The checksums of NPU and Bench are of different kinds, not compared.";
  }
  return {};
}

std::string NonFiniteNotes(const metrics::PairMetrics& m) {
  constexpr std::string_view kNonFinite = ", the data contains nan/inf/-inf in dump data.";
  std::string out;
  if (std::isnan(m.max_abs)) out.append("Cannot compare by MaxAbsError").append(kNonFinite);
  if (std::isnan(m.max_rel)) out.append("Cannot compare by MaxRelativeError").append(kNonFinite);
  return out;
}

std::string MetricNotes(const metrics::PairMetrics& m) {
  using metrics::CosineCase;
  std::string out;
  switch (m.cosine_case) {
    case CosineCase::kOneElement:
      out = "This is a 1-d tensor of length 1.";
      break;
    case CosineCase::kTargetZero:
      out = "Cannot compare by Cosine Similarity, All the data is Zero in npu dump data.";
      break;
    case CosineCase::kGoldenZero:
      out = "Cannot compare by Cosine Similarity, All the data is Zero in Bench dump data.";
      break;
    case CosineCase::kNan:
      out = "Cannot compare by Cosine Similarity, the dump data has NaN.";
      break;
    case CosineCase::kValue:
    case CosineCase::kBothZero:
      break;
  }
  return out + NonFiniteNotes(m);
}

std::string ErrMessage(const Row& row, Mode mode, Face face) {
  if (face == Face::kNew) return NewMessage(row, mode);
  if (mode == Mode::kMd5) return {};
  std::string out = mode == Mode::kTensor ? OldTensorMessage(row) : OldStatisticsMessage(row);
  for (const compare::Highlight reason : row.highlights) {
    if (!out.empty()) out += '\n';
    out += compare::HighlightText(reason);
  }
  for (const compare::Finding& f : row.findings) {
    if (!out.empty()) out += '\n';
    out += compare::FindingText(f);
  }
  return out;
}

std::string_view VerdictText(const Row& row, Mode mode, Face face) {
  if (face == Face::kNew) {
    switch (row.verdict) {
      case compare::Verdict::kPass:
        return "pass";
      case compare::Verdict::kWarning:
        return "warning";
      case compare::Verdict::kError:
        return "error";
      case compare::Verdict::kUnmatched:
        return "unmatched";
    }
  }
  if (mode == Mode::kTensor) {
    switch (row.accuracy) {
      case compare::OldAccuracy::kYes:
        return "Yes";
      case compare::OldAccuracy::kNo:
        return "No";
      case compare::OldAccuracy::kNone:
        return "None";
      case compare::OldAccuracy::kUnmatched:
        return "Unmatched";
    }
  }
  switch (row.result) {
    case compare::OldResult::kEmpty:
      return {};
    case compare::OldResult::kWarning:
      return "Warning";
    case compare::OldResult::kNotCompared:
      return "N/A";
    case compare::OldResult::kPass:
      return "pass";
    case compare::OldResult::kDifferent:
      return "Different";
  }
  return {};
}

std::string_view NotComparedReason(const Row& row, Mode mode) {
  if (row.target == nullptr) return "only in the golden dump";
  if (row.golden == nullptr) return "only in the target dump";
  switch (row.gate) {
    case Gate::kNoTargetFile:
      return "no data file in the target dump";
    case Gate::kNoGoldenFile:
      return "no data file in the golden dump";
    case Gate::kUnreadable:
      return "data file missing or unreadable";
    case Gate::kEmpty:
      return "tensor without elements";
    case Gate::kShapes:
      return "shapes differ";
    case Gate::kNotFloat:
      return "dtype cannot be compared";
    case Gate::kNonFinitePositions:
      return "inf or nan at different positions";
    case Gate::kDTypes:
      return "dtypes of different kinds";
    case Gate::kChecksumKinds:
      return "different checksum kinds";
    case Gate::kNoValues:
      return "nothing was recorded to compare";
    case Gate::kNotReached:
      return "interrupted before this row";
    case Gate::kEmptyGolden:
      return "only the golden tensor is without elements";
    default:
      break;
  }
  if (row.dropped_pair) return "dtype or shape differs";
  return mode == Mode::kMd5 ? "no checksum" : "not comparable";
}

std::string FigureText(const compare::CellValue& cell) {
  switch (cell.kind()) {
    case compare::CellValue::Kind::kNone:
      return "None";
    case compare::CellValue::Kind::kUnknown:
      return {};
    case compare::CellValue::Kind::kBool:
      return cell.as_bool() ? "True" : "False";
    case compare::CellValue::Kind::kInt:
      return std::to_string(cell.as_int());
    case compare::CellValue::Kind::kDouble:
      return PyFloatRepr(cell.as_double());
    case compare::CellValue::Kind::kBigInt:
    case compare::CellValue::Kind::kText:
      return std::string(cell.text());
  }
  return {};
}

std::string_view ModeName(Mode mode) {
  switch (mode) {
    case Mode::kTensor:
      return "tensor";
    case Mode::kStatistics:
      return "statistics";
    case Mode::kMd5:
      return "md5";
  }
  return {};
}

std::string_view FaceName(Face face) { return face == Face::kOld ? "old" : "new"; }

std::string_view RuleSetName(compare::RuleSet r) {
  switch (r) {
    case compare::RuleSet::kBase:
      return "base";
    case compare::RuleSet::kDefault:
      return "default";
    case compare::RuleSet::kUpstream:
      return "upstream";
  }
  return {};
}

}  // namespace msprobe::app
