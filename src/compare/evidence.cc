#include "compare/evidence.h"

#include <algorithm>
#include <cmath>

#include "compare/match.h"
#include "compare/statistics.h"

namespace msprobe::compare {
namespace {

bool HasNoStatistics(const Leaf& leaf) {
  const auto none = [](const CellValue& c) { return c.kind() == CellValue::Kind::kNone; };
  return none(leaf.max) && none(leaf.min) && none(leaf.mean) && none(leaf.norm);
}

void NoValues(Row& row, std::string_view side, std::string_view reason) {
  row.gate = Gate::kNoValues;
  std::string& why = row.unreadable.Edit();
  why = side;
  why += ": ";
  why += reason;
}

// Both leaves are there and of kinds that may meet.
void MarkPair(Row& row, Mode mode, RuleSet rules) {
  const Leaf& t = *row.target;
  const Leaf& g = *row.golden;
  for (const auto& [leaf, side] : {std::pair(&t, "target"), {&g, "golden"}}) {
    if (leaf->lack == Leaf::Lack::kNothing) continue;
    // The recorded answers of the original, which bind the other sets, pass what has no value.
    if (leaf->lack == Leaf::Lack::kNoValue && rules != RuleSet::kDefault) continue;
    return NoValues(row, side, leaf->more->lack_reason);
  }
  if (!t.is_tensor || !g.is_tensor) return;
  const bool same_record = t.shape == g.shape && t.dtype == g.dtype;
  if (same_record && t.no_storage && g.no_storage) {
    row.gate = Gate::kBothEmpty;
    return;
  }
  if (rules != RuleSet::kDefault) return;
  if (ElementsOf(t.shape) == 0 && same_record) {
    row.gate = Gate::kBothEmpty;
    return;
  }
  if (mode == Mode::kMd5) {
    for (const auto& [leaf, side] : {std::pair(&t, "target"), {&g, "golden"}}) {
      if (!leaf->has_sum) return NoValues(row, side, "no checksum was recorded");
    }
  } else if (mode == Mode::kStatistics) {
    for (const auto& [leaf, side] : {std::pair(&t, "target"), {&g, "golden"}}) {
      if (HasNoStatistics(*leaf)) return NoValues(row, side, "no statistics were recorded");
    }
  }
}

}  // namespace

int64_t ElementsOf(std::string_view shape) {
  if (shape.size() < 2 || shape.front() != '[' || shape.back() != ']') return -1;
  constexpr int64_t kMost = int64_t{1} << 62;
  int64_t product = 1, extent = 0;
  bool digits = false;
  for (const char c : shape.substr(1)) {
    if (c >= '0' && c <= '9') {
      extent = std::min(extent, kMost / 10 - 1) * 10 + (c - '0');
      digits = true;
    } else if (c == '-') {
      return -1;
    } else if (digits) {
      if (extent != 0 && product > kMost / extent) {
        product = kMost;
      } else {
        product *= extent;
      }
      extent = 0;
      digits = false;
    }
  }
  return product;
}

void MarkUnrecorded(std::vector<Row>& rows, Mode mode, RuleSet rules) {
  for (Row& row : rows) {
    if (row.target && row.golden && row.gate == Gate::kCompared) MarkPair(row, mode, rules);
  }
}

double Evidence::DeviationAt(double scale) const {
  double largest = 0;
  for (size_t i = 0; i < points; ++i) {
    if (point[i].error > 0) {
      largest = std::max(largest, point[i].error / (std::fabs(point[i].value) + scale));
    }
  }
  return largest;
}

Evidence StatisticsEvidence(const Leaf& target, const Leaf& golden, const SketchPair& sketch) {
  Evidence out;
  const auto t_dtype = RecordedDType(target.dtype), g_dtype = RecordedDType(golden.dtype);
  out.exact = t_dtype && g_dtype && IsExact(*t_dtype) && IsExact(*g_dtype);
  out.unit = std::max(t_dtype ? UnitRoundoff(*t_dtype) : 0, g_dtype ? UnitRoundoff(*g_dtype) : 0);
  out.elements = static_cast<double>(std::max<int64_t>(ElementsOf(golden.shape), 1));
  const double root = std::sqrt(out.elements);
  double tn = 0, gn = 0;
  const bool norms = ClassOf(target.norm, tn) == CellClass::kNumber &&
                     ClassOf(golden.norm, gn) == CellClass::kNumber;
  if (norms) out.rms = std::max(std::fabs(tn), std::fabs(gn)) / root;
  const auto add = [&](const CellValue& a, const CellValue& b, double scale, bool is_norm) {
    double x = 0, y = 0;
    const CellClass ca = ClassOf(a, x), cb = ClassOf(b, y);
    if (ca != CellClass::kNumber || cb != CellClass::kNumber) {
      out.differs = out.differs || ca != cb || (ca == CellClass::kOther && !SameText(a, b));
      out.known = out.known || (ca == CellClass::kOther && a.kind() == CellValue::Kind::kText);
      return;
    }
    out.known = true;
    out.differs = out.differs || !(x == y);
    out.point[out.points++] = {std::fabs(x - y) / scale, is_norm ? 0 : std::fabs(y)};
    if (!norms) out.rms = std::max({out.rms, std::fabs(x), std::fabs(y)});
  };
  add(target.max, golden.max, 1, false);
  add(target.min, golden.min, 1, false);
  add(target.mean, golden.mean, 1, false);
  add(target.norm, golden.norm, root, true);
  out.differs = out.differs || sketch.bits == SketchPair::Bits::kDifferent;
  if (sketch.distance && !sketch.distance->below_floor) {
    out.known = true;
    const double size =
        sketch.distance->relative > 0 ? sketch.distance->distance / sketch.distance->relative : 0;
    out.rms = std::max(out.rms, size / root);
    out.point[out.points++] = {sketch.distance->distance / root, 0};
  }
  return out;
}

Evidence TensorEvidence(const kernels::PairErrors& e, DType target, DType golden) {
  Evidence out;
  out.known = true;
  out.exact = IsExact(target) && IsExact(golden);
  out.unit = std::max(UnitRoundoff(target), UnitRoundoff(golden));
  out.elements = static_cast<double>(e.count);
  out.unequal = static_cast<double>(e.unequal);
  out.differs = e.unequal > 0;
  const double n = std::max(out.elements, 1.0);
  out.rms = std::max(e.a_scale * std::sqrt(e.a_sumsq / n), e.b_scale * std::sqrt(e.b_sumsq / n));
  return out;
}

}  // namespace msprobe::compare
