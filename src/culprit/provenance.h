// Where the tensors that a call received came from (culprit.md 6.4).
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "culprit/run.h"

namespace msprobe::culprit {

struct Producer {
  uint32_t entry = kNowhere, leaf = kNowhere;  // indices in the run
};

class Provenance {
 public:
  explicit Provenance(const Run& run);

  // The recorded results that a leaf of `entry` may be, likeliest first, at most kMost: by storage
  // identity where that was recorded, then by content (equal keys), the latest before the entry
  // first. Content says nothing of tensors of one element or one value.
  static constexpr size_t kMost = 6;
  std::vector<Producer> Of(uint32_t entry, const Leaf& leaf) const;
  // By storage identity only; entry kNowhere: not recorded.
  Producer ByStorage(const Leaf& leaf) const;

 private:
  const Run& run_;
  std::unordered_map<uint64_t, std::vector<Producer>> by_content_;  // ascending by entry
};

}  // namespace msprobe::culprit
