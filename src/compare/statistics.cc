#include "compare/statistics.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
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
  if (n.kind() == Kind::kInt && b.kind() == Kind::kInt) {
    return static_cast<double>(static_cast<__int128>(n.as_int()) -
                               static_cast<__int128>(b.as_int()));
  }
  return n_value - b_value;
}

bool SameDouble(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

void Both(StatCell& diff, StatCell& relative, Stat kind) { diff = relative = {.kind = kind}; }

void Differ(const CellValue& n, const CellValue& b, bool default_words, StatCell& diff,
            StatCell& relative) {
  double x = 0, y = 0;
  if (SameText(n, b)) {
    const CellClass c = default_words ? ClassOf(n, x) : CellClass::kNumber;
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

CellValue CellValue::Bool(bool value) {
  CellValue out;
  out.kind_ = Kind::kBool;
  out.u_.b = value;
  return out;
}

CellValue CellValue::Int(int64_t value) {
  CellValue out;
  out.kind_ = Kind::kInt;
  out.u_.i = value;
  return out;
}

CellValue CellValue::Double(double value) {
  CellValue out;
  out.kind_ = Kind::kDouble;
  out.u_.d = value;
  return out;
}

CellValue CellValue::Borrow(Kind kind, std::string_view text) {
  CellValue out;
  out.kind_ = kind;
  out.size_ =
      static_cast<uint32_t>(std::min<size_t>(text.size(), std::numeric_limits<uint32_t>::max()));
  out.u_.chars = text.data();
  return out;
}

double CellValue::as_double() const {
  if (kind_ == Kind::kDouble) return u_.d;
  double value = 0;
  const auto r = std::from_chars(u_.chars, u_.chars + size_, value);
  if (r.ec != std::errc::result_out_of_range) return value;
  return u_.chars[0] == '-' ? -HUGE_VAL : HUGE_VAL;
}

CellClass ClassOf(const CellValue& cell, double& value) {
  switch (cell.kind()) {
    case Kind::kInt:
      value = static_cast<double>(cell.as_int());
      return CellClass::kNumber;
    case Kind::kBigInt:
    case Kind::kDouble:
      value = cell.as_double();
      return ClassOfDouble(value);
    case Kind::kText:
      return ClassOfText(cell.text(), value);
    case Kind::kUnknown:
      return CellClass::kNotAvailable;
    case Kind::kNone:
    case Kind::kBool:
      return CellClass::kOther;
  }
  return CellClass::kOther;
}

bool IsNonFinite(const CellValue& cell) {
  if (cell.kind() == Kind::kInt || cell.kind() == Kind::kNone || cell.kind() == Kind::kBool)
    return false;
  if (cell.kind() == Kind::kDouble) return !std::isfinite(cell.as_double());
  double value = 0;
  const CellClass c = ClassOf(cell, value);
  return c == CellClass::kNan || c == CellClass::kInf || c == CellClass::kNegInf;
}

bool IsPlainNumber(const CellValue& cell, double& value) {
  if (cell.kind() != Kind::kInt && cell.kind() != Kind::kBigInt && cell.kind() != Kind::kDouble) {
    return false;
  }
  value = cell.kind() == Kind::kInt ? static_cast<double>(cell.as_int()) : cell.as_double();
  return !std::isnan(value);
}

bool SameText(const CellValue& a, const CellValue& b) {
  if (a.kind() != b.kind()) {
    const auto text = [](const CellValue& c) -> std::string_view {
      if (c.kind() == Kind::kBool) return c.as_bool() ? "True" : "False";
      return c.kind() == Kind::kText ? c.text() : std::string_view();
    };
    return !text(a).empty() && text(a) == text(b);
  }
  switch (a.kind()) {
    case Kind::kNone:
    case Kind::kUnknown:
      return true;
    case Kind::kBool:
      return a.as_bool() == b.as_bool();
    case Kind::kInt:
      return a.as_int() == b.as_int();
    case Kind::kDouble:
      return SameDouble(a.as_double(), b.as_double());
    case Kind::kBigInt:
    case Kind::kText:
      return a.text() == b.text();
  }
  return false;
}

StatCells StatisticsCells(const Row& row) {
  StatCells out;
  if (!row.has_statistics) return out;
  const Leaf& n = *row.target;
  const Leaf& b = *row.golden;
  Differ(n.max, b.max, row.default_words, out.diff[0], out.relative[0]);
  Differ(n.min, b.min, row.default_words, out.diff[1], out.relative[1]);
  Differ(n.mean, b.mean, row.default_words, out.diff[2], out.relative[2]);
  Differ(n.norm, b.norm, row.default_words, out.diff[3], out.relative[3]);
  return out;
}

StatCell NormErrorCell(const Row& row) {
  StatCell diff, relative;
  if (row.has_statistics) {
    Differ(row.target->norm, row.golden->norm, row.default_words, diff, relative);
  }
  return relative;
}

}  // namespace msprobe::compare
