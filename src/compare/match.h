// Which golden leaf each target leaf is compared with (compare.md 5).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compare/store.h"

namespace msprobe::compare {

// Rows in report order: every target leaf, then the golden leaves without a partner. Sets target,
// golden, fuzzy, dropped_pair, the gates kNoGoldenRow, kNoTargetRow and kDTypes, grad_consistent
// and first_of_entry.
//
// One matcher for both faces: by row name, backward calls by order of appearance (5.2),
// `….parameters_grad` as `….parameters_grad.0` (D47). What the old face parts by shape (5.1) is
// shown with both sides as dropped_pair. A name that stands n times on each side (D31) pairs in
// order. Rows of -lm, like those of -dm, are not filtered by type.
struct MatchContext {
  bool is_debug = false;
  const std::vector<uint32_t>* partners = nullptr;  // golden entry of each target entry (-lm)
};
std::vector<Row> MatchRows(Side& target, Side& golden, const Options& options,
                           const MatchContext& context, std::vector<std::string>& notes);

// The type filter of 5.3: equal texts, or both of the floating family. The default rules let every
// pair of real numbers meet (D17), tensors as well as Python numbers.
bool MayCompare(std::string_view target_dtype, std::string_view golden_dtype, RuleSet rules);

// The dtype of a record: torch's names (`torch.float32`), NumPy's (`float32`), MindSpore's
// (`Float32`).
std::optional<DType> RecordedDType(std::string_view text);

// A shape text without its dimensions of 1: `[2, 3]` of `[1, 2, 1, 3]`.
std::string SqueezedText(std::string_view shape);

// The entry name after cell mapping (5.6); empty when nothing can match it. `map` may be null: the
// flag alone.
std::string MapCell(std::string_view entry_name, const config::NameMap* map);

}  // namespace msprobe::compare
