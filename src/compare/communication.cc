#include "compare/communication.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <queue>
#include <tuple>
#include <unordered_map>

namespace msprobe::compare {
namespace {

constexpr std::string_view kPrefix = "Distributed.";

constexpr std::array<std::string_view, 19> kCalls = {"send",
                                                     "recv",
                                                     "broadcast",
                                                     "all_reduce",
                                                     "reduce",
                                                     "all_gather",
                                                     "gather",
                                                     "isend",
                                                     "irecv",
                                                     "scatter",
                                                     "reduce_scatter",
                                                     "_reduce_scatter_base",
                                                     "_all_gather_base",
                                                     "all_to_all_single",
                                                     "all_to_all",
                                                     "all_gather_into_tensor",
                                                     "reduce_scatter_tensor",
                                                     "send_object_list",
                                                     "recv_object_list"};

std::string_view PartnerApi(std::string_view api) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kPairs = {
      {{"send", "recv"}, {"isend", "irecv"}, {"send_object_list", "recv_object_list"}}};
  for (const auto& [a, b] : kPairs) {
    if (api == a) return b;
    if (api == b) return a;
  }
  return api;
}

enum class End : uint8_t { kLink, kSrc, kDst };

End PartnerEnd(End end) {
  return end == End::kSrc ? End::kDst : (end == End::kDst ? End::kSrc : End::kLink);
}

struct Node {
  size_t rank = 0, entry = 0;  // indices in the traces
  std::string_view api;
  End end = End::kLink;
  std::vector<int64_t> peers;        // other ranks, sorted; empty: all
  std::vector<int64_t> group;        // its process group, sorted; empty: not recorded
  std::optional<size_t> bad_before;  // first bad computation since the previous communication
  std::vector<size_t> linked;        // indices of ranks that it is connected with

  bool MayMeet(int64_t other) const {
    return peers.empty() || std::binary_search(peers.begin(), peers.end(), other);
  }
  // Two groups may share both ranks and still be different groups.
  bool SameGroup(const Node& other) const {
    return group.empty() || other.group.empty() || group == other.group;
  }
};

End EndOf(const CommArguments& a, int64_t own) {
  if (a.src) return *a.src == own ? End::kSrc : End::kDst;
  if (a.dst) return *a.dst == own ? End::kDst : End::kSrc;
  return End::kLink;
}

std::vector<int64_t> PeersOf(const CommArguments& a, int64_t own) {
  std::vector<int64_t> out = a.group;
  out.insert(out.end(), a.peers.begin(), a.peers.end());
  // The root of a collective call meets the whole group; without one, the ends that are named.
  if (a.group.empty() && a.peers.empty()) {
    if (a.src && *a.src != own) out.push_back(*a.src);
    if (a.dst && *a.dst != own) out.push_back(*a.dst);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  out.erase(std::remove(out.begin(), out.end(), own), out.end());
  return out;
}

// Calls that belong together, by union of pairs.
class Groups {
 public:
  explicit Groups(size_t n) : parent_(n) { std::iota(parent_.begin(), parent_.end(), size_t{0}); }
  size_t Find(size_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  void Join(size_t a, size_t b) { parent_[Find(a)] = Find(b); }

 private:
  std::vector<size_t> parent_;
};

class Timeline {
 public:
  explicit Timeline(std::span<const RankTrace> ranks) : ranks_(ranks) { Collect(); }

  std::vector<FirstEntries::Place> FirstDuring() {
    if (nodes_.empty()) return {};
    Groups groups(nodes_.size());
    Connect(groups);
    const std::vector<size_t> level = Levels(groups);
    size_t lowest = SIZE_MAX;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (IsBad(nodes_[i])) lowest = std::min(lowest, level[i]);
    }
    std::vector<FirstEntries::Place> computed, communicated;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = nodes_[i];
      if (level[i] != lowest) continue;
      if (node.bad_before) computed.push_back({node.rank, *node.bad_before});
      if (EntryOf(node).bad) communicated.push_back({node.rank, node.entry});
    }
    return computed.empty() ? communicated : computed;
  }

 private:
  const TraceEntry& EntryOf(const Node& n) const { return ranks_[n.rank].entries[n.entry]; }
  bool IsBad(const Node& n) const { return n.bad_before || EntryOf(n).bad; }

  void Collect() {
    for (size_t r = 0; r < ranks_.size(); ++r) {
      std::optional<size_t> bad;
      first_.push_back(nodes_.size());
      for (size_t e = 0; e < ranks_[r].entries.size(); ++e) {
        const TraceEntry& entry = ranks_[r].entries[e];
        if (!entry.communication) {
          if (entry.bad && !bad) bad = e;
          continue;
        }
        Node node;
        node.rank = r;
        node.entry = e;
        node.api = CommunicationApi(entry.name);
        node.end = EndOf(entry.comm, ranks_[r].rank);
        node.peers = PeersOf(entry.comm, ranks_[r].rank);
        node.group = entry.comm.group;
        std::sort(node.group.begin(), node.group.end());
        node.bad_before = bad;
        nodes_.push_back(std::move(node));
        bad.reset();
      }
    }
    first_.push_back(nodes_.size());
  }

  // Every call meets, on each rank it may meet, the first call there that is its counterpart and
  // meets none of its rank yet.
  void Connect(Groups& groups) {
    using Key = std::tuple<size_t, std::string_view, End>;  // rank, call, end
    std::map<Key, std::vector<size_t>> by_key;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      by_key[{nodes_[i].rank, nodes_[i].api, nodes_[i].end}].push_back(i);
    }
    std::map<std::pair<size_t, Key>, size_t> cursors;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      Node& a = nodes_[i];
      for (size_t r = a.rank + 1; r < ranks_.size(); ++r) {
        if (!a.MayMeet(ranks_[r].rank)) continue;
        const Key key{r, PartnerApi(a.api), PartnerEnd(a.end)};
        const auto found = by_key.find(key);
        if (found == by_key.end()) continue;
        const std::vector<size_t>& list = found->second;
        size_t& cursor = cursors[{a.rank, key}];
        const auto linked = [&](size_t k) {
          const std::vector<size_t>& l = nodes_[list[k]].linked;
          return std::find(l.begin(), l.end(), a.rank) != l.end();
        };
        while (cursor < list.size() && linked(cursor)) ++cursor;
        for (size_t k = cursor; k < list.size(); ++k) {
          Node& b = nodes_[list[k]];
          if (linked(k) || !b.MayMeet(ranks_[a.rank].rank) || !a.SameGroup(b)) continue;
          b.linked.push_back(a.rank);
          groups.Join(i, list[k]);
          break;
        }
      }
    }
  }

  // Longest path over groups, along the order of each rank. Where ranks contradict one another
  // (calls in crossed order), the group of the earliest call goes first.
  std::vector<size_t> Levels(Groups& groups) {
    std::unordered_map<size_t, std::vector<size_t>> members;
    std::unordered_map<size_t, size_t> waiting, level;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const size_t g = groups.Find(i);
      members[g].push_back(i);
      if (!IsFirst(i)) ++waiting[g];
    }
    using Item = std::pair<size_t, size_t>;  // position of its earliest call, group
    std::priority_queue<Item, std::vector<Item>, std::greater<>> ready, all;
    const auto position = [&](size_t g) {
      size_t p = SIZE_MAX;
      for (const size_t i : members[g]) p = std::min(p, i - first_[nodes_[i].rank]);
      return p;
    };
    for (const auto& [g, list] : members) {
      all.emplace(position(g), g);
      if (waiting[g] == 0) ready.emplace(position(g), g);
    }
    std::unordered_map<size_t, bool> done;
    while (!ready.empty() || !all.empty()) {
      auto& queue = ready.empty() ? all : ready;
      const size_t g = queue.top().second;
      queue.pop();
      if (done[g]) continue;
      done[g] = true;
      for (const size_t i : members[g]) {
        if (IsLast(i)) continue;
        const size_t next = groups.Find(i + 1);
        if (done[next]) continue;
        level[next] = std::max(level[next], level[g] + 1);
        if (--waiting[next] == 0) ready.emplace(position(next), next);
      }
    }
    std::vector<size_t> out(nodes_.size());
    for (size_t i = 0; i < nodes_.size(); ++i) out[i] = level[groups.Find(i)];
    return out;
  }

  bool IsFirst(size_t i) const { return i == first_[nodes_[i].rank]; }
  bool IsLast(size_t i) const { return i + 1 == first_[nodes_[i].rank + 1]; }

  std::span<const RankTrace> ranks_;
  std::vector<Node> nodes_;    // rank by rank, in order
  std::vector<size_t> first_;  // index of each rank's first node, and the end
};

std::optional<size_t> FirstBad(const std::vector<TraceEntry>& entries, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    if (entries[i].bad) return i;
  }
  return std::nullopt;
}

}  // namespace

bool IsCommunication(std::string_view entry) {
  if (!entry.starts_with(kPrefix)) return false;
  const std::string_view api = CommunicationApi(entry);
  return std::any_of(kCalls.begin(), kCalls.end(), [&](std::string_view call) {
    return api.find(call) != std::string_view::npos;
  });
}

std::string_view CommunicationApi(std::string_view entry) {
  if (entry.starts_with(kPrefix)) entry.remove_prefix(kPrefix.size());
  return entry.substr(0, entry.find('.'));
}

NamedEnd PositionalEnd(std::string_view api) {
  constexpr std::array<std::string_view, 4> kDst = {"send", "isend", "send_object_list", "gather"};
  constexpr std::array<std::string_view, 5> kSrc = {"recv", "irecv", "recv_object_list",
                                                    "broadcast", "scatter"};
  if (std::find(kDst.begin(), kDst.end(), api) != kDst.end()) return NamedEnd::kDst;
  if (std::find(kSrc.begin(), kSrc.end(), api) != kSrc.end()) return NamedEnd::kSrc;
  return NamedEnd::kNone;
}

FirstEntries FindFirstEntries(std::span<const RankTrace> ranks) {
  FirstEntries out;
  std::vector<size_t> behind(ranks.size());  // index behind the last communication
  for (size_t r = 0; r < ranks.size(); ++r) {
    const std::vector<TraceEntry>& entries = ranks[r].entries;
    size_t first = entries.size();
    for (size_t i = entries.size(); i-- > 0;) {
      if (!entries[i].communication) continue;
      if (behind[r] == 0) behind[r] = i + 1;
      first = i;
    }
    if (const auto bad = FirstBad(entries, 0, first)) out.places.push_back({r, *bad});
  }
  if (!out.places.empty()) {
    out.stage = FirstStage::kBefore;
    return out;
  }
  out.places = Timeline(ranks).FirstDuring();
  if (!out.places.empty()) {
    out.stage = FirstStage::kDuring;
    return out;
  }
  for (size_t r = 0; r < ranks.size(); ++r) {
    const std::vector<TraceEntry>& entries = ranks[r].entries;
    if (const auto bad = FirstBad(entries, behind[r], entries.size())) {
      out.places.push_back({r, *bad});
    }
  }
  if (!out.places.empty()) out.stage = FirstStage::kAfter;
  return out;
}

}  // namespace msprobe::compare
