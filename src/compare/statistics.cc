#include "compare/statistics.h"

#include <cmath>
#include <string>

#include "base/text.h"

namespace msprobe::compare {
namespace {

using Kind = CellValue::Kind;
using Stat = StatCell::Kind;

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\n\r\f\v";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

CellClass ClassOfDouble(double d) {
  if (std::isnan(d)) return CellClass::kNan;
  if (std::isinf(d)) return d > 0 ? CellClass::kInf : CellClass::kNegInf;
  return CellClass::kNumber;
}

CellClass ClassOfText(std::string_view text, double& value) {
  text = Trimmed(text);
  if (text == "N/A") return CellClass::kNotAvailable;
  if (ParsePyFloat(text, value)) return ClassOfDouble(value);
  const std::string lower = Lower(text);
  for (const std::string_view device : {"npu", "cpu", "cuda"}) {
    if (lower.find(device) != std::string::npos) return CellClass::kDevice;
  }
  return CellClass::kOther;
}

StatCell Number(Stat kind, double value) {
  if (std::isnan(value)) return {.kind = Stat::kNan};
  if (std::isinf(value)) return {.kind = value > 0 ? Stat::kInf : Stat::kNegInf};
  return {.kind = kind, .value = value};
}

// Integers up to 2^63 are subtracted exactly, whatever their size (D18).
double Difference(const CellValue& n, const CellValue& b, double n_value, double b_value) {
  if (n.kind == Kind::kInt && b.kind == Kind::kInt) {
    return static_cast<double>(static_cast<__int128>(n.i) - static_cast<__int128>(b.i));
  }
  return n_value - b_value;
}

void Both(StatCell& diff, StatCell& relative, Stat kind) { diff = relative = {.kind = kind}; }

void Differ(const CellValue& n, const CellValue& b, RuleSet rules, StatCell& diff,
            StatCell& relative) {
  double x = 0, y = 0;
  if (SameText(n, b)) {
    const CellClass c = rules == RuleSet::kDefault ? ClassOf(n, x) : CellClass::kNumber;
    const bool word = c == CellClass::kOther || c == CellClass::kDevice;
    return Both(diff, relative,
                c == CellClass::kNan ? Stat::kNan : (word ? Stat::kNotAvailable : Stat::kZeroText));
  }
  const CellClass cn = ClassOf(n, x), cb = ClassOf(b, y);
  const auto either = [&](CellClass c) { return cn == c || cb == c; };
  if (either(CellClass::kNotAvailable)) return Both(diff, relative, Stat::kNotAvailable);
  if (cn == CellClass::kDevice && cb == CellClass::kDevice) {
    return Both(diff, relative, Stat::kNotAvailable);
  }
  if (either(CellClass::kDevice) || either(CellClass::kOther)) {
    return Both(diff, relative, Stat::kDiff);
  }
  if (either(CellClass::kNan)) return Both(diff, relative, Stat::kNan);
  if (cn == CellClass::kNumber && cb == CellClass::kNumber) {
    const double d = Difference(n, b, x, y);
    diff = Number(Stat::kNumber, d);
    if (y != 0) {
      relative = Number(Stat::kPercent, std::abs(d / y * 100));
    } else {
      // 0.0 against 0 or -0.0 is no infinite error.
      relative = {.kind = d == 0 ? Stat::kZeroText : Stat::kInf};
    }
    return;
  }
  // At least one infinity, and they differ: the sign of NPU - Bench.
  const bool positive = cn == CellClass::kInf || cb == CellClass::kNegInf;
  Both(diff, relative, positive ? Stat::kInf : Stat::kNegInf);
}

}  // namespace

CellClass ClassOf(const CellValue& cell, double& value) {
  switch (cell.kind) {
    case Kind::kInt:
      value = static_cast<double>(cell.i);
      return CellClass::kNumber;
    case Kind::kBigInt:
    case Kind::kDouble:
      value = cell.d;
      return ClassOfDouble(cell.d);
    case Kind::kText:
      return ClassOfText(cell.text, value);
    case Kind::kUnknown:
      return CellClass::kNotAvailable;
    case Kind::kNone:
    case Kind::kBool:
      return CellClass::kOther;
  }
  return CellClass::kOther;
}

bool IsNonFinite(const CellValue& cell) {
  if (cell.kind == Kind::kInt || cell.kind == Kind::kNone || cell.kind == Kind::kBool) return false;
  if (cell.kind == Kind::kDouble) return !std::isfinite(cell.d);
  double value = 0;
  const CellClass c = ClassOf(cell, value);
  return c == CellClass::kNan || c == CellClass::kInf || c == CellClass::kNegInf;
}

bool IsPlainNumber(const CellValue& cell, double& value) {
  if (cell.kind != Kind::kInt && cell.kind != Kind::kBigInt && cell.kind != Kind::kDouble) {
    return false;
  }
  value = cell.kind == Kind::kInt ? static_cast<double>(cell.i) : cell.d;
  return !std::isnan(value);
}

bool SameText(const CellValue& a, const CellValue& b) {
  if (a.kind != b.kind) {
    const auto text = [](const CellValue& c) -> std::string_view {
      if (c.kind == Kind::kBool) return c.b ? "True" : "False";
      return c.kind == Kind::kText ? c.text : std::string_view();
    };
    return !text(a).empty() && text(a) == text(b);
  }
  switch (a.kind) {
    case Kind::kNone:
    case Kind::kUnknown:
      return true;
    case Kind::kBool:
      return a.b == b.b;
    case Kind::kInt:
      return a.i == b.i;
    case Kind::kDouble:
      return (std::isnan(a.d) && std::isnan(b.d)) ||
             (a.d == b.d && std::signbit(a.d) == std::signbit(b.d));
    case Kind::kBigInt:
    case Kind::kText:
      return a.text == b.text;
  }
  return false;
}

void StatisticsMetrics(Row& row, RuleSet rules) {
  const Leaf& n = *row.target;
  const Leaf& b = *row.golden;
  Differ(n.max, b.max, rules, row.diff[0], row.relative[0]);
  Differ(n.min, b.min, rules, row.diff[1], row.relative[1]);
  Differ(n.mean, b.mean, rules, row.diff[2], row.relative[2]);
  Differ(n.norm, b.norm, rules, row.diff[3], row.relative[3]);
}

}  // namespace msprobe::compare
