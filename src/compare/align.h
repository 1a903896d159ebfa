// Pairs of calls that names do not give: another number of calls of one operator, renamed modules,
// two spellings of one function.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "compare/store.h"

namespace msprobe::compare {

inline constexpr uint32_t kNoEntry = 0xFFFFFFFFu;

// The golden entry of each target entry, or kNoEntry. `exact` is the pairing by name; pairs of an
// operator that was called a different number of times on the two sides are not trusted. What is
// left over between trusted pairs is aligned in order (largest sum of likeness): two entries may
// meet when operator or class, direction and the shapes of their tensors agree, and with other
// module paths or prefixes only when recorded values agree too. Gradients follow their forward
// calls. Time and memory are bounded: long stretches are paired greedily, in order.
//
// `names`: what the entries are called for this, when a mapping or wrappers gave them other names.
struct AlignNames {
  std::vector<std::string_view> target, golden;
};
std::vector<uint32_t> AlignEntries(const Side& target, const Side& golden, const AlignNames& names,
                                   const std::vector<uint32_t>& exact);

}  // namespace msprobe::compare
