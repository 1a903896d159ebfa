// Which entries of a comparison differ, for the search for the first one (compare.md 19; D12).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compare/communication.h"
#include "compare/compare.h"

namespace msprobe::compare {

struct EntryDifference {
  std::string_view name;       // lives as long as the comparison
  size_t first = 0, last = 0;  // its rows: [first, last)
  bool same = true;            // no compared output differs
  bool compared = false;       // some output was compared
  size_t row = 0;              // the first output that differs
  std::string reason;          // its row name and the figures
};

// Entries in report order. An output differs when a statistic is off by more than 0.5 % of the
// golden one, when the golden one is 0 and the target's is not, when one is NaN or infinite and the
// other is another class, when texts differ, or when checksums differ. In tensor mode also when the
// elements do: more than 0.5 % of the golden norm, other positions of NaN and infinity, other
// shape.
std::vector<EntryDifference> FindDifferences(const Comparison& comparison);

// The entries as FindFirstEntries wants them. Entries whose results are no result (empty tensors,
// fills, __setitem__; gradients of parameters and dtype conversions on the old face) are never bad.
RankTrace TraceOf(const Comparison& comparison, const std::vector<EntryDifference>& entries,
                  int64_t rank, Face face);

}  // namespace msprobe::compare
