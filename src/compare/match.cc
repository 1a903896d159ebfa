#include "compare/match.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

namespace msprobe::compare {
namespace {

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
constexpr std::string_view kUnmatchable("\0", 1);

using Keys = std::vector<std::string_view>;

// The rest of a row name after its entry's name; nullopt-like npos when the row is named after a
// file of its own.
bool IsUnder(std::string_view row, std::string_view entry) {
  return row.size() >= entry.size() && row.substr(0, entry.size()) == entry &&
         (row.size() == entry.size() || row[entry.size()] == '.');
}

// Row keys of a side from one key per entry (empty: the entry's own name).
Keys RowKeys(Side& side, const Keys& entry_keys) {
  Keys keys;
  keys.reserve(side.leaves.size());
  for (const Leaf& leaf : side.leaves) {
    const std::string_view key = entry_keys[leaf.entry];
    const std::string& entry = side.entries[leaf.entry].name;
    if (key.empty() || !IsUnder(leaf.name, entry)) {
      keys.push_back(leaf.name);
    } else if (key == kUnmatchable) {
      keys.push_back({});
    } else {
      keys.push_back(side.arena.Join(key, leaf.name.substr(entry.size())));
    }
  }
  return keys;
}

// The name with its call number replaced: backward calls are counted per base, because
// recomputation renumbers forward calls (5.2); gradients without a number are number 0.
std::string NormalName(std::string_view name,
                       std::unordered_map<std::string, uint64_t>& backward_calls) {
  const NameParts parts = ParseEntryName(name);
  if (parts.direction == Direction::kGrad) {
    return fmt::format("{}.parameters_grad.{}", parts.base, parts.call.empty() ? "0" : parts.call);
  }
  if (parts.direction != Direction::kBackward) return std::string(name);
  const uint64_t n = backward_calls[std::string(parts.base)]++;
  return parts.number_last ? fmt::format("{}.backward.{}", parts.base, n)
                           : fmt::format("{}.{}.backward", parts.base, n);
}

Keys ExactEntryKeys(Side& side, bool renumber, bool map_cells, const config::NameMap* cells) {
  std::unordered_map<std::string, uint64_t> backward_calls;
  Keys keys;
  keys.reserve(side.entries.size());
  for (const Entry& entry : side.entries) {
    std::string name = map_cells ? MapCell(entry.name, cells) : entry.name;
    if (name.empty()) {
      keys.push_back(kUnmatchable);
      continue;
    }
    if (renumber) name = NormalName(name, backward_calls);
    keys.push_back(name == entry.name ? std::string_view() : side.arena.Copy(name));
  }
  return keys;
}

// Pairs entries that differ only in their call number (5.4, D10), by upstream's procedure made
// linear: both sides advance in step; the newest target entry takes the oldest waiting golden entry
// of its name, else the newest golden entry takes the oldest waiting target entry; whatever waited
// before a pair stays alone.
class FuzzyMatcher {
 public:
  FuzzyMatcher(const Side& target, const Side& golden) : t_(target), g_(golden) {}

  // The golden entry of each target entry, or kNone.
  std::vector<uint32_t> Run() {
    std::vector<uint32_t> partner(t_.names.size(), kNone);
    const size_t steps = std::max(t_.names.size(), g_.names.size());
    for (size_t step = 0; step < steps; ++step) {
      t_.Arrive(step);
      g_.Arrive(step);
      uint32_t t = static_cast<uint32_t>(step), g = kNone;
      if (t < t_.names.size()) g = g_.OldestWaiting(t_.names[t]);
      if (g == kNone && step < g_.names.size()) {
        g = static_cast<uint32_t>(step);
        t = t_.OldestWaiting(g_.names[g]);
        if (t == kNone) g = kNone;
      }
      if (g == kNone) continue;
      partner[t] = g;
      t_.cut = t + 1;
      g_.cut = g + 1;
    }
    return partner;
  }

 private:
  struct Queue {
    explicit Queue(const Side& side) {
      names.reserve(side.entries.size());
      for (const Entry& entry : side.entries) {
        const NameParts parts = ParseEntryName(entry.name);
        names.push_back(fmt::format("{}\n{}", static_cast<int>(parts.direction), parts.base));
      }
    }
    void Arrive(size_t i) {
      if (i < names.size()) waiting[names[i]].push_back(static_cast<uint32_t>(i));
    }
    uint32_t OldestWaiting(const std::string& name) {
      const auto it = waiting.find(name);
      if (it == waiting.end()) return kNone;
      while (!it->second.empty() && it->second.front() < cut) it->second.pop_front();
      return it->second.empty() ? kNone : it->second.front();
    }
    std::vector<std::string> names;
    std::unordered_map<std::string_view, std::deque<uint32_t>> waiting;
    uint32_t cut = 0;  // entries before it have left the queue
  };
  Queue t_, g_;
};

// Entry keys under which exactly the paired entries meet.
void FuzzyEntryKeys(Side& target, Side& golden, Keys& target_keys, Keys& golden_keys) {
  const std::vector<uint32_t> partner = FuzzyMatcher(target, golden).Run();
  target_keys.assign(target.entries.size(), kUnmatchable);
  golden_keys.assign(golden.entries.size(), kUnmatchable);
  for (size_t t = 0; t < partner.size(); ++t) {
    if (partner[t] == kNone) continue;
    const std::string_view key = target.arena.Copy(fmt::format("\n{}", t));
    target_keys[t] = golden_keys[partner[t]] = key;
  }
}

// Golden leaves by key, each handed out once, those of equal keys in order.
class GoldenIndex {
 public:
  explicit GoldenIndex(const Keys& keys)
      : keys_(keys), next_(keys.size(), kNone), taken_(keys.size(), false) {}

  // `guess`: where it would be if both sides ran in step.
  uint32_t Take(std::string_view key, size_t guess) {
    if (key.empty()) return kNone;
    if (guess < keys_.size() && !taken_[guess] && keys_[guess] == key) {
      taken_[guess] = true;
      return static_cast<uint32_t>(guess);
    }
    if (!built_) Build();
    const auto it = heads_.find(key);
    if (it == heads_.end()) return kNone;
    uint32_t& head = it->second;
    while (head != kNone && taken_[head]) head = next_[head];
    if (head == kNone) return kNone;
    const uint32_t found = head;
    taken_[found] = true;
    head = next_[found];
    return found;
  }
  bool taken(size_t i) const { return taken_[i]; }

 private:
  void Build() {
    built_ = true;
    heads_.reserve(keys_.size());
    for (size_t i = keys_.size(); i-- > 0;) {
      if (keys_[i].empty()) continue;
      const auto [it, fresh] = heads_.try_emplace(keys_[i], static_cast<uint32_t>(i));
      if (fresh) continue;
      next_[i] = it->second;
      it->second = static_cast<uint32_t>(i);
    }
  }

  const Keys& keys_;
  std::unordered_map<std::string_view, uint32_t> heads_;
  std::vector<uint32_t> next_;
  std::vector<bool> taken_;
  bool built_ = false;
};

void MapRows(const config::NameMap& map, const Side& target, Keys& keys) {
  std::unordered_map<std::string_view, std::string_view> to;
  for (const auto& [from, into] : map) to.insert_or_assign(from, into);
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto it = to.find(target.leaves[i].name);
    if (it != to.end()) keys[i] = it->second;
  }
}

void Pair(Row& row, const Options& options) {
  const Leaf& t = *row.target;
  const Leaf& g = *row.golden;
  row.grad_consistent = t.requires_grad == g.requires_grad;
  row.fuzzy = options.fuzzy && !options.data_mapping && t.name != g.name;
  if (!options.data_mapping && !MayCompare(t.dtype, g.dtype)) {
    row.dropped_pair = true;
    row.gate = Gate::kDTypes;
  } else if (options.face == Face::kOld && !options.data_mapping && t.shape != g.shape) {
    row.dropped_pair = true;
  }
}

// Leaves of a side in the order of its entries: a repeated entry's leaves stand at its first place.
std::vector<uint32_t> LeafOrder(const Side& side) {
  std::vector<uint32_t> order;
  order.reserve(side.leaves.size());
  for (const Entry& entry : side.entries) {
    for (size_t i = 0; i < entry.count; ++i) {
      order.push_back(static_cast<uint32_t>(entry.first + i));
    }
  }
  return order;
}

std::vector<Row> PairRows(const Side& target, const Side& golden, const Keys& target_keys,
                          const Keys& golden_keys, const Options& options) {
  GoldenIndex index(golden_keys);
  std::vector<bool> current(golden.leaves.size(),
                            false);  // leaves of entries that were replaced are not rows
  const std::vector<uint32_t> golden_order = LeafOrder(golden);
  for (const uint32_t i : golden_order) current[i] = true;
  std::vector<Row> rows;
  rows.reserve(target.leaves.size());
  size_t guess = 0;
  uint32_t last_entry = kNone;
  for (const uint32_t t : LeafOrder(target)) {
    Row& row = rows.emplace_back();
    row.target = &target.leaves[t];
    row.first_of_entry = row.target->entry != last_entry;
    last_entry = row.target->entry;
    uint32_t g = index.Take(target_keys[t], guess);
    while (g != kNone && !current[g]) g = index.Take(target_keys[t], guess);
    if (g == kNone) {
      row.gate = Gate::kNoGoldenRow;
      row.grad_consistent = row.target->requires_grad == Leaf::Grad::kUnknown;
      continue;
    }
    guess = g + 1;
    row.golden = &golden.leaves[g];
    Pair(row, options);
  }
  for (const uint32_t g : golden_order) {
    if (index.taken(g)) continue;
    Row& row = rows.emplace_back();
    row.golden = &golden.leaves[g];
    row.gate = Gate::kNoTargetRow;
    row.grad_consistent = row.golden->requires_grad == Leaf::Grad::kUnknown;
  }
  return rows;
}

}  // namespace

bool MayCompare(std::string_view target_dtype, std::string_view golden_dtype) {
  static constexpr std::array<std::string_view, 4> kTorch = {"torch.float16", "torch.float32",
                                                             "torch.bfloat16", "torch.float64"};
  static constexpr std::array<std::string_view, 4> kMindSpore = {"Float16", "Float32", "BFloat16",
                                                                 "Float64"};
  const auto both_in = [&](const std::array<std::string_view, 4>& family) {
    return std::find(family.begin(), family.end(), target_dtype) != family.end() &&
           std::find(family.begin(), family.end(), golden_dtype) != family.end();
  };
  return target_dtype == golden_dtype || both_in(kTorch) || both_in(kMindSpore);
}

std::string MapCell(std::string_view entry_name, const config::NameMap* map) {
  std::string name(entry_name);
  if (name.starts_with("Cell.")) name.replace(0, 4, "Module");
  const std::string dotted = name + ".";
  size_t end = std::string::npos;
  for (const std::string_view word : {".forward.", ".backward.", ".parameters_grad."}) {
    end = std::min(end, dotted.find(word));
  }
  if (end == std::string::npos) return {};
  const size_t dot = name.find('.');
  if (!map || dot >= end) return name;
  const std::string cell = name.substr(dot + 1, end - dot - 1);
  std::string mapped = cell;
  const auto exact =
      std::find_if(map->begin(), map->end(), [&](const auto& pair) { return pair.first == cell; });
  if (exact != map->end()) {
    mapped = exact->second;
  } else {
    for (const auto& [from, to] : *map) {
      const size_t at = from.empty() ? std::string::npos : mapped.find(from);
      if (at != std::string::npos) mapped.replace(at, from.size(), to);
    }
  }
  return name.substr(0, dot + 1) + mapped + name.substr(end);
}

std::vector<Row> MatchRows(Side& target, Side& golden, const Options& options, bool is_debug) {
  Keys target_entries, golden_entries;
  if (options.fuzzy && !options.data_mapping) {
    FuzzyEntryKeys(target, golden, target_entries, golden_entries);
  } else {
    const bool renumber = !is_debug && !options.data_mapping;
    const bool map_cells = options.cell_mapping || options.cell_mapping_flag;
    const config::NameMap* cells = options.cell_mapping ? &*options.cell_mapping : nullptr;
    target_entries = ExactEntryKeys(target, renumber, map_cells, cells);
    golden_entries = ExactEntryKeys(golden, renumber, false, nullptr);
  }
  Keys target_keys = RowKeys(target, target_entries);
  const Keys golden_keys = RowKeys(golden, golden_entries);
  if (options.data_mapping) MapRows(*options.data_mapping, target, target_keys);
  return PairRows(target, golden, target_keys, golden_keys, options);
}

}  // namespace msprobe::compare
