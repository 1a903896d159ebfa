#include "compare/replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <unordered_map>

#include "compare/communication.h"
#include "dump/reader.h"

namespace msprobe::compare {
namespace {

constexpr size_t kMostDepth = 64;
constexpr std::array<std::string_view, 7> kNonFinite = {"nan",      "inf",       "-inf", "NaN",
                                                        "Infinity", "-Infinity", "-nan"};

uint64_t HashOf(std::string_view text) { return std::hash<std::string_view>()(text); }

// Results that every rank of the group receives.
bool GivesToAll(std::string_view api) {
  constexpr std::array<std::string_view, 6> kCalls = {
      "all_reduce", "all_gather",        "all_gather_into_tensor",
      "broadcast",  "all_gather_object", "_all_gather_base"};
  return std::find(kCalls.begin(), kCalls.end(), api) != kCalls.end();
}

double NumberOf(const json::Value* v) {
  if (v == nullptr || !v->is_number()) return std::numeric_limits<double>::quiet_NaN();
  return v->as_double();
}

class LeafReader {
 public:
  explicit LeafReader(RankLeaves& out) : out_(out) {}

  void Entry(std::string_view name, const json::Value& value) {
    if (!value.is_object()) return;
    entry_ = name;
    const bool shared =
        name.ends_with(".forward") && IsCommunication(name) && GivesToAll(CommunicationApi(name));
    for (const auto* m = value.members_begin(); m != value.members_end(); ++m) {
      LeafClass kind = LeafClass::kOther;
      if (m->key == "parameters" || m->key == "param") kind = LeafClass::kParameter;
      if (shared && m->key == "output") kind = LeafClass::kShared;
      const bool input = m->key == "input_args" || m->key == "input_kwargs" || m->key == "args" ||
                         m->key == "kwargs" || m->key == "input";
      if (!input) Walk(m->value, std::string(m->key), kind, 0);
    }
  }

 private:
  void Walk(const json::Value& v, std::string path, LeafClass kind, size_t depth) {
    if (depth > kMostDepth) return;
    if (v.is_array()) {
      for (size_t i = 0; i < v.size(); ++i) {
        Walk(v[i], fmt::format("{}.{}", path, i), kind, depth + 1);
      }
    } else if (v.is_object() && v.Find("dtype") != nullptr && v.Find("shape") != nullptr) {
      Add(v, path, kind);
    } else if (v.is_object()) {
      for (const auto* m = v.members_begin(); m != v.members_end(); ++m) {
        Walk(m->value, path + "." + std::string(m->key), kind, depth + 1);
      }
    }
  }

  void Add(const json::Value& v, const std::string& path, LeafClass kind) {
    ReplicaLeaf leaf;
    leaf.entry = entry_;
    leaf.name = path;
    leaf.kind = kind;
    std::string form, print;
    for (const char* key : {"dtype", "shape"}) form += json::PyStr(*v.Find(key)) + " ";
    std::string figures;
    for (const char* key : {"Max", "Min", "Mean", "Norm"}) {
      const json::Value* figure = v.Find(key);
      const std::string text = figure == nullptr ? "None" : json::PyStr(*figure);
      print += text + " ";
      // As numbers, and as the words that some releases wrote.
      if (std::any_of(kNonFinite.begin(), kNonFinite.end(),
                      [&](std::string_view word) { return text == word; })) {
        leaf.finite = false;
      }
      if (!figures.empty()) figures += ", ";
      figures += fmt::format("{} {}", key, text);
    }
    for (const char* key : {"hash64", "md5"}) {
      const json::Value* sum = v.Find(key);
      if (sum == nullptr || !sum->is_string()) continue;
      print = sum->as_string();
      figures = fmt::format("{} {}", key, print);
      break;
    }
    leaf.norm = NumberOf(v.Find("Norm"));
    leaf.form = HashOf(form);
    leaf.print = HashOf(print);
    leaf.figures = std::move(figures);
    out_.leaves.push_back(std::move(leaf));
  }

  RankLeaves& out_;
  std::string entry_;
};

// A place: the same leaf of all ranks.
struct Place {
  const ReplicaLeaf* first = nullptr;
  std::vector<const ReplicaLeaf*> of_rank;  // null where a rank has none
};

std::vector<Place> Places(std::span<const RankLeaves> ranks) {
  std::vector<Place> out;
  std::unordered_map<std::string, size_t> known;
  for (size_t r = 0; r < ranks.size(); ++r) {
    for (const ReplicaLeaf& leaf : ranks[r].leaves) {
      const auto [it, fresh] = known.try_emplace(leaf.entry + "." + leaf.name, out.size());
      if (fresh) {
        out.emplace_back();
        out.back().first = &leaf;
        out.back().of_rank.resize(ranks.size());
      }
      out[it->second].of_rank[r] = &leaf;
    }
  }
  return out;
}

// Indices of ranks with more than half of their parameters in common, smallest first.
std::vector<std::vector<size_t>> GroupsByParameters(const std::vector<Place>& places, size_t n,
                                                    bool& any) {
  std::vector<size_t> head(n);
  std::iota(head.begin(), head.end(), size_t{0});
  std::map<std::pair<size_t, size_t>, std::pair<uint64_t, uint64_t>> equal;  // of all
  for (const Place& p : places) {
    if (p.first->kind != LeafClass::kParameter) continue;
    any = true;
    // Against the first rank that has the same value: equality is transitive.
    std::map<uint64_t, size_t> owner;
    for (size_t r = 0; r < n; ++r) {
      if (p.of_rank[r] == nullptr) continue;
      const uint64_t value = p.of_rank[r]->print ^ (p.of_rank[r]->form * 31);
      for (const auto& [other, first] : owner) {
        auto& [same, all] = equal[{first, r}];
        ++all;
        same += other == value;
      }
      owner.try_emplace(value, r);
    }
  }
  const std::function<size_t(size_t)> find = [&](size_t i) {
    while (head[i] != i) i = head[i];
    return i;
  };
  for (const auto& [pair, counts] : equal) {
    if (counts.first * 2 <= counts.second) continue;
    const size_t a = find(pair.first), b = find(pair.second);
    head[std::max(a, b)] = std::min(a, b);
  }
  std::map<size_t, std::vector<size_t>> groups;
  for (size_t r = 0; r < n; ++r) groups[find(r)].push_back(r);
  std::vector<std::vector<size_t>> out;
  for (auto& [first, members] : groups) out.push_back(std::move(members));
  return out;
}

class Finder {
 public:
  Finder(std::span<const RankLeaves> ranks, const std::vector<Place>& places)
      : ranks_(ranks), places_(places) {}

  void Group(const std::vector<size_t>& members) {
    for (const Place& p : places_) {
      ++leaves_;
      if (Presence(p, members) || Differs(p, members, OddKind::kForm)) continue;
      if (p.first->kind == LeafClass::kParameter) Differs(p, members, OddKind::kParameter);
      if (p.first->kind == LeafClass::kShared) Differs(p, members, OddKind::kShared);
      if (p.first->kind == LeafClass::kOther && !NonFinite(p, members)) Magnitude(p, members);
    }
  }

  // Ranks that are in no group although some are, with parameters of the same shapes as theirs.
  void Strangers(const std::vector<std::vector<size_t>>& groups) {
    const auto largest =
        std::max_element(groups.begin(), groups.end(),
                         [](const auto& a, const auto& b) { return a.size() < b.size(); });
    if (largest == groups.end() || largest->size() < 2) return;
    for (const auto& g : groups) {
      if (g.size() > 1) continue;
      const size_t r = g.front(), other = largest->front();
      uint64_t parameters = 0;
      const ReplicaLeaf* first = nullptr;
      bool same_forms = true;
      for (const Place& p : places_) {
        if (p.first->kind != LeafClass::kParameter) continue;
        const ReplicaLeaf *a = p.of_rank[r], *b = p.of_rank[other];
        same_forms = same_forms && a != nullptr && b != nullptr && a->form == b->form;
        if (a != nullptr && b != nullptr && a->print != b->print && ++parameters == 1) first = a;
      }
      if (!same_forms || first == nullptr) continue;
      Add(OddKind::kStranger, r, *first,
          fmt::format("{} of its parameters differ from those of the {} ranks that agree",
                      parameters, largest->size()));
    }
  }

  std::vector<OddOne> Take() {
    std::vector<OddOne> out;
    for (auto& [key, odd] : odd_) out.push_back(std::move(odd));
    std::stable_sort(out.begin(), out.end(), [&](const OddOne& a, const OddOne& b) {
      return std::pair(a.kind, order_.at({a.kind, a.rank})) <
             std::pair(b.kind, order_.at({b.kind, b.rank}));
    });
    return out;
  }
  uint64_t leaves() const { return leaves_; }

 private:
  static constexpr size_t kNobody = SIZE_MAX;

  void Add(OddKind kind, size_t rank, const ReplicaLeaf& leaf, std::string reason) {
    const int64_t number = rank == kNobody ? -1 : ranks_[rank].rank;
    const auto [it, fresh] = odd_.try_emplace({kind, number});
    if (!fresh) {
      ++it->second.count;
      return;
    }
    it->second = {kind, number, leaf.entry, leaf.name, std::move(reason), 1};
    order_[{kind, number}] = order_.size();
  }

  bool Presence(const Place& p, const std::vector<size_t>& members) {
    const auto has = [&](size_t r) { return p.of_rank[r] != nullptr; };
    const auto n = static_cast<size_t>(std::count_if(members.begin(), members.end(), has));
    if (n == members.size()) return false;
    for (const size_t r : members) {
      if (has(r) == (n * 2 > members.size())) continue;
      if (n * 2 == members.size()) break;
      Add(OddKind::kMissing, r, *p.first,
          has(r) ? "only this rank of its replicas has it" : "its replicas have it");
    }
    return true;
  }

  bool Differs(const Place& p, const std::vector<size_t>& members, OddKind kind) {
    const auto value = [&](size_t r) {
      return kind == OddKind::kForm ? p.of_rank[r]->form : p.of_rank[r]->print;
    };
    std::map<uint64_t, size_t> count;
    for (const size_t r : members) ++count[value(r)];
    if (count.size() == 1) return false;
    const auto most =
        std::max_element(count.begin(), count.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    const bool form = kind == OddKind::kForm;
    if (most->second * 2 <= members.size()) {
      // Shapes follow the data, and so may part ways without a fault.
      if (!form && members.size() == 2) {
        Add(kind, kNobody, *p.first,
            fmt::format("rank {}: {}; rank {}: {}", ranks_[members[0]].rank,
                        p.of_rank[members[0]]->figures, ranks_[members[1]].rank,
                        p.of_rank[members[1]]->figures));
      }
      return true;
    }
    if (form && p.first->kind == LeafClass::kOther) return true;
    const auto other = std::find_if(members.begin(), members.end(),
                                    [&](size_t r) { return value(r) == most->first; });
    for (const size_t r : members) {
      if (value(r) == most->first) continue;
      Add(kind, r, *p.of_rank[r],
          form ? "its dtype or shape is another than that of its replicas"
               : fmt::format("{}; {} of its {} replicas: {}", p.of_rank[r]->figures, most->second,
                             members.size() - 1, p.of_rank[*other]->figures));
    }
    return true;
  }

  bool NonFinite(const Place& p, const std::vector<size_t>& members) {
    const auto bad = [&](size_t r) { return !p.of_rank[r]->finite; };
    const auto n = static_cast<size_t>(std::count_if(members.begin(), members.end(), bad));
    if (n == 0) return false;
    for (const size_t r : members) {
      if (!bad(r) || n * 2 >= members.size()) continue;
      Add(OddKind::kNonFinite, r, *p.of_rank[r],
          fmt::format("{}; finite on {} of its {} replicas", p.of_rank[r]->figures,
                      members.size() - n, members.size() - 1));
    }
    return true;
  }

  void Magnitude(const Place& p, const std::vector<size_t>& members) {
    constexpr size_t kFewest = 4;
    constexpr double kFactor = 8;
    if (members.size() < kFewest) return;
    std::vector<double> norms;
    for (const size_t r : members) norms.push_back(p.of_rank[r]->norm);
    if (std::any_of(norms.begin(), norms.end(), [](double x) { return !(x >= 0); })) return;
    std::vector<double> sorted = norms;
    std::sort(sorted.begin(), sorted.end());
    const double median = sorted[sorted.size() / 2];
    if (!(median > 0)) return;
    // The others must be of one magnitude themselves: a quarter may not already be as far away.
    const size_t quarter = sorted.size() / 4;
    if (sorted[sorted.size() - 1 - quarter] > median * 2 || sorted[quarter] < median / 2) return;
    for (size_t i = 0; i < members.size(); ++i) {
      if (norms[i] <= median * kFactor && norms[i] >= median / kFactor) continue;
      Add(OddKind::kMagnitude, members[i], *p.of_rank[members[i]],
          fmt::format("norm {:.4g}, median of its replicas {:.4g}", norms[i], median));
    }
  }

  std::span<const RankLeaves> ranks_;
  const std::vector<Place>& places_;
  std::map<std::pair<OddKind, int64_t>, OddOne> odd_;
  std::map<std::pair<OddKind, int64_t>, size_t> order_;
  uint64_t leaves_ = 0;
};

}  // namespace

std::string_view OddKindName(OddKind kind) {
  constexpr std::array<std::string_view, 7> kNames = {
      "parameter", "shared result", "stranger", "form", "missing", "not finite", "magnitude"};
  return kNames[static_cast<size_t>(kind)];
}

Result<RankLeaves> ReadRankLeaves(const std::string& dump_json, int64_t rank) {
  RankLeaves out;
  out.rank = rank;
  LeafReader reader(out);
  MSPROBE_ASSIGN(const dump::ReadInfo info,
                 dump::ReadDump(dump_json, [&](std::string_view name, const json::Value& value) {
                   reader.Entry(name, value);
                   return true;
                 }));
  out.torn = info.torn;
  return out;
}

ReplicaReport FindOddRanks(std::span<const RankLeaves> ranks,
                           std::span<const std::vector<int64_t>> groups) {
  ReplicaReport out;
  const std::vector<Place> places = Places(ranks);
  std::vector<std::vector<size_t>> members;
  bool parameters = false;
  if (groups.empty()) {
    members = GroupsByParameters(places, ranks.size(), parameters);
    if (!parameters) {
      members.assign(1, std::vector<size_t>(ranks.size()));
      std::iota(members.front().begin(), members.front().end(), size_t{0});
    }
  }
  for (const std::vector<int64_t>& group : groups) {
    members.emplace_back();
    for (size_t r = 0; r < ranks.size(); ++r) {
      if (std::find(group.begin(), group.end(), ranks[r].rank) != group.end()) {
        members.back().push_back(r);
      }
    }
  }
  Finder finder(ranks, places);
  if (groups.empty()) finder.Strangers(members);
  for (const std::vector<size_t>& group : members) {
    if (group.size() < 2) continue;
    finder.Group(group);
    out.groups.emplace_back();
    for (const size_t r : group) out.groups.back().push_back(ranks[r].rank);
  }
  out.odd = finder.Take();
  out.leaves = finder.leaves();
  return out;
}

}  // namespace msprobe::compare
