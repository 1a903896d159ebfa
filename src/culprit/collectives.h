// Collectives judged from the inputs of all ranks (culprit.md 6.9): what a rank received is the sum
// or a copy of what the ranks gave, whatever it was. Needs no golden run and no PyTorch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace msprobe::culprit {

struct RankDump {
  int64_t rank = 0;
  std::string dump_json;
};

struct CollectiveScore {
  std::string leaf;      // the result that is furthest beyond its limit
  double deviation = 0;  // |y - f(inputs of all ranks)| / |f|
  double limit = 0;      // of the deviation
  std::string reason;    // why it was not judged; empty: it was
  bool judged() const { return reason.empty(); }
  bool over() const { return judged() && deviation > limit; }
};
using CollectiveScores = std::unordered_map<std::string, CollectiveScore>;  // by entry

// Of both sides of one rank; null: nothing is known.
struct CollectivesOfRank {
  const CollectiveScores* target = nullptr;
  const CollectiveScores* golden = nullptr;
};

// One map per dump, in their order; `dumps` are the ranks of one step. Calls belong together by
// group and API, and by their number in that order. Judged: all_reduce, reduce, broadcast,
// all_gather, reduce_scatter and the forms of the last two on one tensor. From elements; sums and
// copies of whole tensors also from sketches. Limit: 1e-5 of |f| and four roundings of the sum of
// the inputs' norms (16 bits: 0.02). Not judged, with the reason: other kinds, ranks of the group
// that have no dump, ranks that made other calls, parts without elements or sketch. A call without
// a group is one of all ranks; where their number is not in the dump it is that of `dumps` when
// these are 0 … n-1, unless `world_must_be_known`.
std::vector<CollectiveScores> JudgeCollectives(std::span<const RankDump> dumps,
                                               bool world_must_be_known);

}  // namespace msprobe::culprit
