#include "compare/match.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "compare/align.h"
#include "compare/api_names.h"

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

// Names under which the entries of a side are matched.
struct EntryKeys {
  Keys keys;                                   // empty: the entry's own name
  std::vector<const config::ApiPair*> places;  // of -am, per entry or none at all
  bool apis = false;                           // -am is in force
};

// What stands behind the entry's name in a row's name, as both sides have it under -am: files of
// keyword tensors are named `.kwargs.`, other keywords `.input.`.
std::string PlaceKey(std::string_view place, const Entry& entry, const config::ApiPair* pair) {
  constexpr std::string_view kKeywords = ".kwargs.";
  std::string out(place);
  if (place.starts_with(kKeywords)) {
    out = fmt::format(".input.{}", place.substr(kKeywords.size()));
  }
  return pair == nullptr ? out : GoldenPlace(out, ParseEntryName(entry.name).direction, *pair);
}

// Row keys of a side from one key per entry; empty: matches nothing.
Keys RowKeys(Side& side, const EntryKeys& entries) {
  Keys keys;
  keys.reserve(side.leaves.size());
  for (const Leaf& leaf : side.leaves) {
    const std::string_view key = entries.keys[leaf.entry];
    const Entry& entry = side.entries[leaf.entry];
    if (!IsUnder(leaf.name, entry.name) || (key.empty() && !entries.apis)) {
      keys.push_back(leaf.name);
    } else if (key == kUnmatchable) {
      keys.push_back({});
    } else if (!entries.apis) {
      keys.push_back(side.arena.Join(key, leaf.name.substr(entry.name.size())));
    } else {
      const auto* pair = entries.places.empty() ? nullptr : entries.places[leaf.entry];
      const std::string place = PlaceKey(leaf.name.substr(entry.name.size()), entry, pair);
      const bool nowhere = place.empty() && leaf.name.size() > entry.name.size();
      keys.push_back(nowhere ? std::string_view()
                             : side.arena.Join(key.empty() ? entry.name : key, place));
    }
  }
  return keys;
}

// The name with its call number replaced: backward calls are counted per base, because
// recomputation renumbers forward calls (5.2); gradients without a number are number 0. `apis`
// says of which functions forward calls are counted too.
using CallCounts = std::unordered_map<std::string, uint64_t>;
std::string NormalName(std::string_view name, const ApiNames* apis, CallCounts& backward_calls,
                       CallCounts& forward_calls) {
  const NameParts parts = ParseEntryName(name);
  if (parts.direction == Direction::kGrad) {
    return fmt::format("{}.parameters_grad.{}", parts.base, parts.call.empty() ? "0" : parts.call);
  }
  const std::string base(parts.base);
  if (parts.direction == Direction::kForward && apis != nullptr && apis->IsShared(base)) {
    return fmt::format("{}.{}.forward", base, forward_calls[base]++);
  }
  if (parts.direction != Direction::kBackward) return std::string(name);
  const uint64_t n = backward_calls[base]++;
  return parts.number_last ? fmt::format("{}.backward.{}", base, n)
                           : fmt::format("{}.{}.backward", base, n);
}

// How names of one side are changed before they are matched.
struct Renaming {
  bool renumber = false;   // backward calls by order, wrappers and second names
  bool map_cells = false;  // target side under -cm
  const config::NameMap* cells = nullptr;
  const ApiNames* apis = nullptr;  // under -am
  bool rename_apis = false;        // the target side
};

// The name under the mappings of the user; empty when nothing can match it.
std::string MappedName(const Entry& entry, const Renaming& how, EntryKeys& out) {
  if (how.rename_apis) {
    ApiNames::Found found = how.apis->Find(entry.name);
    out.places.back() = found.pair;
    if (found.name != entry.name) return std::move(found.name);
  }
  return how.map_cells ? MapCell(entry.name, how.cells) : entry.name;
}

// `renamed` counts names that are matched under another one.
EntryKeys ExactEntryKeys(Side& side, const Renaming& how, size_t& renamed) {
  CallCounts backward_calls, forward_calls;
  std::unordered_set<std::string_view> names;  // filled when a name is not the one it is matched by
  EntryKeys out;
  Keys& keys = out.keys;
  const bool renumber = how.renumber;
  out.apis = how.apis != nullptr;
  keys.reserve(side.entries.size());
  for (const Entry& entry : side.entries) {
    if (how.rename_apis) out.places.push_back(nullptr);
    std::string name = MappedName(entry, how, out);
    if (name.empty()) {
      keys.push_back(kUnmatchable);
      continue;
    }
    if (renumber) {
      // Two entries of one side never become one.
      std::string canonical = CanonicalName(name);
      if (canonical != name) {
        if (names.empty()) {
          for (const Entry& e : side.entries) names.insert(e.name);
        }
        if (!names.contains(canonical)) {
          name = std::move(canonical);
          ++renamed;
        }
      }
    }
    if (renumber) name = NormalName(name, how.apis, backward_calls, forward_calls);
    keys.push_back(name == entry.name ? std::string_view() : side.arena.Copy(name));
  }
  return out;
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
        const std::string canonical = CanonicalName(entry.name);
        const NameParts parts = ParseEntryName(canonical);
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

// Keys of paired entries begin with a character that no name of a row begins with: pairs that were
// asked for, and pairs that are proposed.
constexpr char kAsked = '\r', kProposed = '\n';

// Entry keys under which exactly the paired entries meet.
void PairedEntryKeys(const std::vector<uint32_t>& partner, Side& target, const Side& golden,
                     Keys& target_keys, Keys& golden_keys) {
  target_keys.assign(target.entries.size(), kUnmatchable);
  golden_keys.assign(golden.entries.size(), kUnmatchable);
  for (size_t t = 0; t < partner.size(); ++t) {
    if (partner[t] == kNone) continue;
    const std::string_view key = target.arena.Copy(fmt::format("{}{}", kAsked, t));
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

struct RowMatching {
  Keys target, golden;
  bool fuzzy = false;
  bool filtered = true;  // by type and, old face, shape; not when the user pairs rows (5.3)
};

void Pair(Row& row, const Options& options, const RowMatching& matching, bool proposed) {
  const Leaf& t = *row.target;
  const Leaf& g = *row.golden;
  row.grad_consistent = t.requires_grad == g.requires_grad;
  row.proposed = proposed;
  row.fuzzy = matching.fuzzy && t.name != g.name;
  if (!matching.filtered) return;
  if (!MayCompare(t.dtype, g.dtype, options.rules)) {
    row.dropped_pair = true;
    row.gate = Gate::kDTypes;
  } else if (options.face == Face::kOld && t.shape != g.shape) {
    // D20: extents of 1 part nothing.
    row.dropped_pair =
        options.rules != RuleSet::kDefault || SqueezedText(t.shape) != SqueezedText(g.shape);
  }
}

// A row without a partner: upstream calls its gradient flag inconsistent, the default rules do not
// (D15).
bool AloneIsConsistent(const Leaf& leaf, const Options& options) {
  return options.rules == RuleSet::kDefault || leaf.requires_grad == Leaf::Grad::kUnknown;
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

std::vector<Row> PairRows(const Side& target, const Side& golden, const RowMatching& matching,
                          const Options& options) {
  const Keys& target_keys = matching.target;
  GoldenIndex index(matching.golden);
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
      row.grad_consistent = AloneIsConsistent(*row.target, options);
      continue;
    }
    guess = g + 1;
    row.golden = &golden.leaves[g];
    Pair(row, options, matching, target_keys[t].starts_with(kProposed));
  }
  for (const uint32_t g : golden_order) {
    if (index.taken(g)) continue;
    Row& row = rows.emplace_back();
    row.golden = &golden.leaves[g];
    row.gate = Gate::kNoTargetRow;
    row.grad_consistent = AloneIsConsistent(*row.golden, options);
  }
  return rows;
}

}  // namespace

bool MayCompare(std::string_view target_dtype, std::string_view golden_dtype, RuleSet rules) {
  static constexpr std::array<std::string_view, 4> kTorch = {"torch.float16", "torch.float32",
                                                             "torch.bfloat16", "torch.float64"};
  static constexpr std::array<std::string_view, 4> kMindSpore = {"Float16", "Float32", "BFloat16",
                                                                 "Float64"};
  static constexpr std::array<std::string_view, 3> kPython = {"<class 'int'>", "<class 'float'>",
                                                              "<class 'bool'>"};
  const auto both_in = [&](const auto& family) {
    return std::find(family.begin(), family.end(), target_dtype) != family.end() &&
           std::find(family.begin(), family.end(), golden_dtype) != family.end();
  };
  if (target_dtype == golden_dtype || both_in(kTorch) || both_in(kMindSpore)) return true;
  const auto t = RecordedDType(target_dtype), g = RecordedDType(golden_dtype);
  // Dumps of two frameworks: kinds of numbers meet.
  const bool two_frameworks =
      target_dtype.starts_with("torch.") != golden_dtype.starts_with("torch.");
  if (t && g && two_frameworks) {
    return IsFloat(*t) == IsFloat(*g) && IsComplex(*t) == IsComplex(*g) &&
           (*t == DType::kBool) == (*g == DType::kBool);
  }
  if (rules != RuleSet::kDefault) return false;
  if (both_in(kPython)) return true;
  return t && g && IsComplex(*t) == IsComplex(*g);
}

std::optional<DType> RecordedDType(std::string_view text) {
  // Asked of every leaf several times, and dumps have a handful of types.
  struct Recent {
    std::array<char, 31> text;
    uint8_t size = 0;
    std::optional<DType> dtype;
  };
  constexpr size_t kSlots = 16;
  thread_local std::array<Recent, kSlots> recent;
  std::array<char, 31> buffer;
  if (text.size() > buffer.size() || text.empty()) return std::nullopt;
  Recent& slot = recent[(text.size() + static_cast<unsigned char>(text.back())) % kSlots];
  if (std::string_view(slot.text.data(), slot.size) == text) return slot.dtype;
  std::transform(text.begin(), text.end(), buffer.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  slot.dtype = DTypeFromTorchName({buffer.data(), text.size()});
  slot.size = static_cast<uint8_t>(text.size());
  std::copy(text.begin(), text.end(), slot.text.begin());
  return slot.dtype;
}

std::string SqueezedText(std::string_view shape) {
  if (shape.size() < 2 || shape.front() != '[' || shape.back() != ']') return std::string(shape);
  std::string out = "[";
  for (std::string_view rest = shape.substr(1, shape.size() - 2); !rest.empty();) {
    const size_t comma = rest.find(", ");
    const std::string_view extent = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 2);
    if (extent == "1") continue;
    if (out.size() > 1) out += ", ";
    out += extent;
  }
  return out + "]";
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

namespace {

// Pairs by alignment what names leave over (default rules); the keys of both sides are replaced so
// that exactly the paired entries meet. Returns how many pairs have other names on the two sides.
size_t ProposePairs(Side& target, Side& golden, Keys& target_keys, Keys& golden_keys) {
  const auto key_of = [](const Side& side, const Keys& keys, size_t i) {
    return keys[i].empty() ? std::string_view(side.entries[i].name) : keys[i];
  };
  std::unordered_map<std::string_view, uint32_t> by_key;
  for (size_t g = 0; g < golden.entries.size(); ++g) {
    if (golden_keys[g] != kUnmatchable) {
      by_key.try_emplace(key_of(golden, golden_keys, g), static_cast<uint32_t>(g));
    }
  }
  std::vector<uint32_t> exact(target.entries.size(), kNoEntry);
  size_t found = 0;
  for (size_t t = 0; t < exact.size(); ++t) {
    if (target_keys[t] == kUnmatchable) continue;
    const auto it = by_key.find(key_of(target, target_keys, t));
    if (it == by_key.end()) continue;
    exact[t] = it->second;
    ++found;
  }
  if (found == target.entries.size() && found == golden.entries.size()) return 0;
  AlignNames names;
  for (size_t t = 0; t < target.entries.size(); ++t) {
    const bool nameless = target_keys[t] == kUnmatchable;
    names.target.push_back(nameless ? target.entries[t].name : key_of(target, target_keys, t));
  }
  for (size_t g = 0; g < golden.entries.size(); ++g) {
    const bool nameless = golden_keys[g] == kUnmatchable;
    names.golden.push_back(nameless ? golden.entries[g].name : key_of(golden, golden_keys, g));
  }
  const std::vector<uint32_t> partner = AlignEntries(target, golden, names, exact);
  std::vector<bool> paired(golden.entries.size(), false);
  size_t proposed = 0;
  for (size_t t = 0; t < partner.size(); ++t) {
    if (partner[t] == exact[t]) {
      if (exact[t] != kNoEntry) paired[exact[t]] = true;
      continue;
    }
    if (partner[t] == kNoEntry) {
      target_keys[t] = kUnmatchable;
      continue;
    }
    const std::string_view key = target.arena.Copy(fmt::format("{}{}", kProposed, t));
    target_keys[t] = golden_keys[partner[t]] = key;
    paired[partner[t]] = true;
    ++proposed;
  }
  for (size_t g = 0; g < paired.size(); ++g) {
    if (!paired[g]) golden_keys[g] = kUnmatchable;
  }
  return proposed;
}

}  // namespace

namespace {

// Pairs by name, each side under its mappings, and what is left over by likeness.
void NamePairs(Side& target, Side& golden, const Options& options, bool renumber,
               std::pair<EntryKeys, EntryKeys>& keys, std::vector<std::string>& notes) {
  Renaming how;
  how.renumber = renumber;
  std::optional<ApiNames> apis;
  if (options.api_mapping || options.api_mapping_flag) {
    apis.emplace(options.api_mapping ? &*options.api_mapping : nullptr, target, golden);
    how.apis = &*apis;
    const std::vector<std::string> unused = apis->Unused(target);
    if (!unused.empty()) {
      notes.push_back(fmt::format("-am: {} of its names are not in the target dump, first {}",
                                  unused.size(), unused.front()));
    }
  }
  size_t renamed = 0;
  keys.second = ExactEntryKeys(golden, how, renamed);
  how.map_cells = options.cell_mapping || options.cell_mapping_flag;
  how.cells = options.cell_mapping ? &*options.cell_mapping : nullptr;
  how.rename_apis = apis.has_value();
  keys.first = ExactEntryKeys(target, how, renamed);
  if (renamed > 0) {
    notes.push_back(
        fmt::format("{} entries are matched without wrapper prefixes (module, _orig_mod, "
                    "_fsdp_wrapped_module) or by another name of their function",
                    renamed));
  }
  if (options.rules == RuleSet::kDefault && renumber) {
    ProposePairs(target, golden, keys.first.keys, keys.second.keys);
  }
}

}  // namespace

std::vector<Row> MatchRows(Side& target, Side& golden, const Options& options,
                           const MatchContext& context, std::vector<std::string>& notes) {
  RowMatching matching;
  matching.filtered = !options.data_mapping && context.partners == nullptr;
  std::pair<EntryKeys, EntryKeys> keys;
  if (context.partners != nullptr) {
    PairedEntryKeys(*context.partners, target, golden, keys.first.keys, keys.second.keys);
  } else if (options.fuzzy && !options.data_mapping) {
    matching.fuzzy = true;
    PairedEntryKeys(FuzzyMatcher(target, golden).Run(), target, golden, keys.first.keys,
                    keys.second.keys);
  } else {
    NamePairs(target, golden, options, !context.is_debug && !options.data_mapping, keys, notes);
  }
  matching.target = RowKeys(target, keys.first);
  matching.golden = RowKeys(golden, keys.second);
  if (options.data_mapping) MapRows(*options.data_mapping, target, matching.target);
  return PairRows(target, golden, matching, options);
}

}  // namespace msprobe::compare
