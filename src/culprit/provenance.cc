#include "culprit/provenance.h"

#include <algorithm>

namespace msprobe::culprit {
namespace {

bool Telling(const Leaf& leaf) {
  return leaf.has_key && leaf.elements > 1 && !(leaf.max == leaf.min);
}

}  // namespace

Provenance::Provenance(const Run& run) : run_(run) {
  for (uint32_t e = 0; e < run.entries.size(); ++e) {
    const Entry& entry = run.entries[e];
    for (uint32_t i = entry.first; i < entry.first + entry.count; ++i) {
      const Leaf& leaf = run.leaves[i];
      if (leaf.role != Role::kOutput && leaf.role != Role::kMutated) continue;
      if (leaf.kind == LeafKind::kTensor && Telling(leaf)) by_content_[leaf.key].push_back({e, i});
    }
  }
}

Producer Provenance::ByStorage(const Leaf& leaf) const {
  if (leaf.origin == kNowhere) return {};
  const Origin& origin = run_.origins[leaf.origin];
  if (origin.earlier_step) return {};
  Producer out;
  out.entry = run_.Find(origin.entry);
  if (out.entry == kNowhere) return {};
  const Leaf* found = run_.FindLeaf(out.entry, Role::kOutput, origin.leaf);
  if (found == nullptr) found = run_.FindLeaf(out.entry, Role::kMutated, origin.leaf);
  if (found == nullptr) return {};
  out.leaf = static_cast<uint32_t>(found - run_.leaves.data());
  return out;
}

std::vector<Producer> Provenance::Of(uint32_t entry, const Leaf& leaf) const {
  std::vector<Producer> out;
  if (const Producer p = ByStorage(leaf); p.entry != kNowhere) out.push_back(p);
  if (!Telling(leaf)) return out;
  const auto it = by_content_.find(leaf.key);
  if (it == by_content_.end()) return out;
  auto end = std::lower_bound(it->second.begin(), it->second.end(), entry,
                              [](const Producer& p, uint32_t e) { return p.entry < e; });
  while (end != it->second.begin() && out.size() < kMost) {
    --end;
    if (out.empty() || out.front().entry != end->entry || out.front().leaf != end->leaf)
      out.push_back(*end);
  }
  return out;
}

}  // namespace msprobe::culprit
