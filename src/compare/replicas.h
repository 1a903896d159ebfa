// One dump read across its ranks: which ranks are replicas of one another, and which of them is
// unlike the others.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace msprobe::compare {

// What replicas must have in common: parameters, and what collectives gave to all. Other values
// come of each rank's own data.
enum class LeafClass : uint8_t { kParameter, kShared, kOther };

struct ReplicaLeaf {
  std::string entry, name;  // "output.0", "parameters.weight"
  LeafClass kind = LeafClass::kOther;
  uint64_t form = 0;   // of dtype and shape
  uint64_t print = 0;  // of the value: its checksum, else the statistics
  double norm = std::numeric_limits<double>::quiet_NaN();
  bool finite = true;   // no NaN or infinity in what was recorded
  std::string figures;  // "norm 1.5", for people
};

struct RankLeaves {
  int64_t rank = 0;
  std::vector<ReplicaLeaf> leaves;  // in order of execution
  bool torn = false;
};

// Errors: those of dump::ReadDump.
Result<RankLeaves> ReadRankLeaves(const std::string& dump_json, int64_t rank);

enum class OddKind : uint8_t {
  kParameter,  // a parameter that the other replicas agree on
  kShared,     // the result of a collective that they agree on
  kStranger,   // no parameter in common with any other rank, and all of the same shapes
  kForm,       // another dtype or shape than theirs
  kMissing,    // a call that they made and it did not, or the other way round
  kNonFinite,  // NaN or infinity, where theirs is finite
  kMagnitude,  // a norm far from theirs; its data may explain that
};
std::string_view OddKindName(OddKind kind);

struct OddOne {
  OddKind kind = OddKind::kParameter;
  int64_t rank = 0;  // -1: two replicas differ, and nothing says which is right
  std::string entry, leaf;
  std::string reason;  // one clause with the figures
  uint64_t count = 1;  // places where this rank is odd in this way; this is the first
};

struct ReplicaReport {
  std::vector<std::vector<int64_t>> groups;  // ranks that are replicas; those alone are left out
  std::vector<OddOne> odd;                   // what must agree first; then by place
  uint64_t leaves = 0;                       // that were compared over ranks
};

// `groups`: replicas as the user knows them; empty: ranks that have more than half of their
// parameters in common, or all ranks when none was recorded. A value is held against a rank when
// more than half of its replicas agree on another one; of two replicas only the difference is told.
// Magnitudes: of at least 4 replicas, when the norm is more than 8 times the median away from the
// median of their norms, or less than an eighth.
ReplicaReport FindOddRanks(std::span<const RankLeaves> ranks,
                           std::span<const std::vector<int64_t>> groups);

}  // namespace msprobe::compare
