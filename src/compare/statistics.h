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

// Sets row.diff and row.relative of a matched row; integers are subtracted exactly. Under the
// default rules equal texts that are no numbers are no difference of zero (D16): NaN against NaN is
// NaN, equal words are not available.
void StatisticsMetrics(Row& row, RuleSet rules);

}  // namespace msprobe::compare
