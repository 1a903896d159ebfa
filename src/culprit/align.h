// Which call of one run is which call of the other (culprit.md 6.2): by sequence, not by name and
// number, so that one call more or less does not shift all that follow.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "culprit/run.h"
#include "culprit/tensors.h"

namespace msprobe::culprit {

struct Alignment {
  std::vector<uint32_t> of_target, of_golden;  // by entry: the partner, or kNowhere
  // Forward calls without a partner, in runs of neighbours. `place`: the target entry before which
  // the group stands (kNowhere: at the end).
  struct Group {
    std::vector<uint32_t> target, golden;  // either may be empty
    uint32_t place = kNowhere;
  };
  std::vector<Group> groups;
  std::vector<uint32_t> group_of_target, group_of_golden;  // by entry: index in groups, or kNowhere
};

// Forward API calls in three passes of a diff over (API, parent module, input shapes), then, inside
// what is left, (API, parent), then API, but never across two modules that both runs have; runs of
// equal calls slide to where contents agree best. Backward entries follow their forward calls;
// modules and gradients of parameters go by name. Time is near-linear whatever the dumps hold: see
// Pairs.
Alignment Align(const Run& target, const Run& golden, const Distances& distances);

// Common subsequence of two sequences of tokens as ascending pairs of indices. Myers' greedy
// algorithm (1986) while the sequences differ in at most kMostEdits places; beyond that tokens that
// occur once on both sides are anchors (patience diff), and a stretch without anchors is paired by
// occurrence. Never quadratic.
inline constexpr int kMostEdits = 400;
std::vector<std::pair<uint32_t, uint32_t>> Pairs(const std::vector<uint64_t>& a,
                                                 const std::vector<uint64_t>& b);

}  // namespace msprobe::culprit
