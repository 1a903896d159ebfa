// Differences of recorded statistics (compare.md 8.2) and the classes of cells behind them.
#pragma once

#include "compare/compare.h"

namespace msprobe::compare {

enum class CellClass : uint8_t { kNan, kInf, kNegInf, kNumber, kDevice, kNotAvailable, kOther };

// A number's value comes in `value`; texts that parse as numbers count as such. A missing statistic
// is kOther.
CellClass ClassOf(const CellValue& cell, double& value);
// NaN or infinity, as a number or as text.
bool IsNonFinite(const CellValue& cell);
// A number (not a text, not a bool) other than NaN: what upstream's colouring takes for one.
bool IsPlainNumber(const CellValue& cell, double& value);
// Equal as cell texts; NaN equals NaN.
bool SameText(const CellValue& a, const CellValue& b);

}  // namespace msprobe::compare
