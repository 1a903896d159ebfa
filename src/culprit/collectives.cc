#include "culprit/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "base/file.h"
#include "culprit/run.h"
#include "culprit/tensors.h"
#include "json/json.h"
#include "kernels/load.h"

namespace msprobe::culprit {
namespace {

enum class Form : uint8_t {
  kReduce,
  kReduceTo,
  kBroadcast,
  kGather,
  kGatherInto,
  kScatter,
  kSplit
};

// A parameter: its place among positional arguments, and its names as a keyword.
struct Parameter {
  int place;
  std::array<std::string_view, 2> names;
};

struct Collective {
  std::string_view name;
  Form form;
  Parameter result, given;
  int op, end, group;  // places; -1: there is none. end: source or destination
};

constexpr Parameter kTensor = {0, {"tensor", ""}};
constexpr Collective kCollectives[] = {
    {"all_reduce", Form::kReduce, kTensor, kTensor, 1, -1, 2},
    {"reduce", Form::kReduceTo, kTensor, kTensor, 2, 1, 3},
    {"broadcast", Form::kBroadcast, kTensor, kTensor, -1, 1, 2},
    {"all_gather", Form::kGather, {0, {"tensor_list", ""}}, {1, {"tensor", ""}}, -1, -1, 2},
    {"all_gather_into_tensor",
     Form::kGatherInto,
     {0, {"output_tensor", ""}},
     {1, {"input_tensor", ""}},
     -1,
     -1,
     2},
    {"_all_gather_base",
     Form::kGatherInto,
     {0, {"output_tensor", ""}},
     {1, {"input_tensor", ""}},
     -1,
     -1,
     2},
    {"reduce_scatter", Form::kScatter, {0, {"output", ""}}, {1, {"input_list", ""}}, 2, -1, 3},
    {"reduce_scatter_tensor",
     Form::kSplit,
     {0, {"output", "output_tensor"}},
     {1, {"input", "input_tensor"}},
     2,
     -1,
     3},
    {"_reduce_scatter_base",
     Form::kSplit,
     {0, {"output", "output_tensor"}},
     {1, {"input", "input_tensor"}},
     2,
     -1,
     3},
};

const Collective* CollectiveOf(std::string_view api) {
  const auto* const it = std::find_if(std::begin(kCollectives), std::end(kCollectives),
                                      [&](const Collective& k) { return k.name == api; });
  return it == std::end(kCollectives) ? nullptr : it;
}

// A tensor as numbers that add: its elements, or the slots of its sketch.
struct Values {
  std::vector<double> x;
  bool slots = false;
  metrics::SketchSetting setting;
  int64_t elements = 0;
  bool sixteen = false;
  double Norm() const {
    double sum = 0;
    for (const double v : x) sum += v * v;
    return std::sqrt(sum);
  }
};

std::optional<Values> ValuesOf(const Run& run, const Leaf& leaf) {
  Values out;
  out.elements = leaf.elements;
  out.sixteen = leaf.sixteen;
  if (!leaf.data_name.empty()) {
    const Result<Tensor> tensor = ReadTensor(run, leaf);
    if (tensor.ok() && !IsComplex(tensor->dtype)) {
      out.x.resize(static_cast<size_t>(leaf.elements));
      kernels::LoadDoubles(tensor->bytes.data(), 1, out.x.size(), tensor->dtype, out.x.data());
      return out;
    }
  }
  if (leaf.sketch == kNowhere) return std::nullopt;
  const metrics::Sketch& sketch = run.sketches[leaf.sketch];
  if (!sketch.whole() || sketch.left_out() > 0) return std::nullopt;
  out.x = sketch.values;
  out.slots = true;
  out.setting = sketch.setting;
  return out;
}

bool Alike(const Values& a, const Values& b) {
  return a.x.size() == b.x.size() && a.slots == b.slots && a.elements == b.elements &&
         (!a.slots || a.setting == b.setting);
}

// One call of one rank.
struct Member {
  size_t dump = 0;  // index
  uint32_t entry = 0;
  int64_t rank = 0;
  int64_t number = 0;
};

// What the arguments of an entry are called: "input.0" or "input.tensor", and where the same stands
// in the list of results, which are the positional arguments and then the keywords.
class Arguments {
 public:
  Arguments(const Run& run, uint32_t entry) : run_(run), entry_(run.entries[entry]) {
    for (uint32_t i = entry_.first; i < entry_.first + entry_.count; ++i) {
      const Leaf& leaf = run.leaves[i];
      if (leaf.role != Role::kInput) continue;
      const std::string_view name = PartOf(leaf.name);
      if (std::find(names_.begin(), names_.end(), name) == names_.end()) names_.push_back(name);
    }
  }

  // The parameter's leaves, "input.2" or "output.2.0" and so on, in order.
  std::vector<const Leaf*> Leaves(Role role, const Parameter& p) const {
    std::vector<const Leaf*> out;
    const std::string_view name = NameOf(p);
    if (name.empty()) return out;
    const std::string wanted =
        role == Role::kInput ? std::string(name) : std::to_string(IndexOf(name));
    for (uint32_t i = entry_.first; i < entry_.first + entry_.count; ++i) {
      const Leaf& leaf = run_.leaves[i];
      if (leaf.role == role && PartOf(leaf.name) == wanted) out.push_back(&leaf);
    }
    return out;
  }

  const Leaf* Argument(int place, std::string_view keyword) const {
    if (place < 0) return nullptr;
    const std::vector<const Leaf*> found = Leaves(Role::kInput, {place, {keyword, ""}});
    return found.empty() ? nullptr : found.front();
  }

 private:
  // "input.tensor.0" -> "tensor"
  static std::string_view PartOf(std::string_view name) {
    const size_t dot = name.find('.');
    if (dot == std::string_view::npos) return {};
    const std::string_view rest = name.substr(dot + 1);
    return rest.substr(0, rest.find('.'));
  }

  std::string_view NameOf(const Parameter& p) const {
    const std::string place = std::to_string(p.place);
    for (const std::string_view name : names_) {
      if (name == place) return name;
      for (const std::string_view keyword : p.names) {
        if (!keyword.empty() && name == keyword) return name;
      }
    }
    return {};
  }

  size_t IndexOf(std::string_view name) const {
    return static_cast<size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin());
  }

  const Run& run_;
  const Entry& entry_;
  std::vector<std::string_view> names_;
};

// The number of ranks that the footer of our own dumps holds; 0: unknown. It is the last member of
// the file.
int64_t WorldOf(const std::string& path) {
  constexpr uint64_t kTail = 1 << 16;
  Result<InputFile> file = InputFile::Open(path);
  if (!file.ok()) return 0;
  const uint64_t size = std::min(kTail, file->size());
  std::string tail(size, '\0');
  if (!file->ReadAt(file->size() - size, std::as_writable_bytes(std::span(tail))).ok()) return 0;
  const size_t at = tail.rfind("\"msprobe\":");
  if (at == std::string::npos) return 0;
  const Result<json::Document> document = json::ParseDocument("{" + tail.substr(at));
  if (!document.ok()) return 0;
  const json::Value* footer = document->root().Find("msprobe");
  const json::Value* world =
      footer != nullptr && footer->is_object() ? footer->Find("world_size") : nullptr;
  return world != nullptr && world->is_int() ? world->as_int() : 0;
}

// The ranks of a recorded group, "[0, 1]"; empty: it has no such text.
std::vector<int64_t> RanksOf(const std::string& text) {
  std::vector<int64_t> out;
  const Result<json::Document> document = json::ParseDocument(text);
  if (!document.ok() || !document->root().is_array()) return out;
  for (const json::Value& v : document->root()) {
    if (v.is_int()) out.push_back(v.as_int());
  }
  return out;
}

// The sum, mean, largest, smallest or product of what the ranks gave.
struct Combined {
  Values values;
  double scale = 0;    // sum of the norms of what was combined
  std::string reason;  // why there are no values
};

Combined Reduce(const std::vector<const Values*>& parts, std::string_view op) {
  Combined out;
  const bool mean = op == "AVG";
  const bool sum = op == "SUM" || mean;
  if (!sum && op != "MAX" && op != "MIN" && op != "PRODUCT") {
    out.reason = fmt::format("the operation {} is not judged", op);
    return out;
  }
  out.values = *parts.front();
  if (out.values.slots && !sum) out.reason = "sketches say nothing of this operation";
  for (const Values* part : parts) {
    out.scale += part->Norm();
    if (!Alike(*part, out.values)) out.reason = "the ranks gave tensors of different sizes";
  }
  if (!out.reason.empty()) return out;
  for (size_t k = 1; k < parts.size(); ++k) {
    const std::vector<double>& x = parts[k]->x;
    for (size_t i = 0; i < x.size(); ++i) {
      double& v = out.values.x[i];
      v = sum               ? v + x[i]
          : op == "PRODUCT" ? v * x[i]
          : op == "MAX"     ? std::max(v, x[i])
                            : std::min(v, x[i]);
    }
  }
  const auto n = static_cast<double>(parts.size());
  if (mean) {
    for (double& v : out.values.x) v /= n;
    out.scale /= n;
  }
  return out;
}

// Puts a result beside what it should be; keeps the one that is furthest beyond its limit.
void Put(CollectiveScore& score, const Leaf& leaf, const Values& y, const Combined& f) {
  double squares = 0;
  bool classes = false;
  double norm = 0;
  for (size_t i = 0; i < y.x.size(); ++i) {
    const double a = y.x[i];
    const double b = f.values.x[i];
    if (std::isfinite(a) && std::isfinite(b)) {
      squares += (a - b) * (a - b);
      norm += b * b;
    } else if (!(a == b) && !(std::isnan(a) && std::isnan(b))) {
      classes = true;
    }
  }
  norm = std::sqrt(norm);
  constexpr double kRelative = 1e-5, kRelative16 = 0.02;
  constexpr double kRoundings = 4;
  const double u = y.sixteen ? 0x1p-8 : 0x1p-24;
  const double size = std::max({norm, 1e-12 * f.scale, 1e-300});
  const double limit =
      leaf.floating
          ? ((y.sixteen ? kRelative16 : kRelative) * norm + kRoundings * u * f.scale) / size
          : 0;
  const double deviation =
      classes ? std::numeric_limits<double>::infinity() : std::sqrt(squares) / size;
  const bool first = score.leaf.empty();
  if (first || deviation - limit > score.deviation - score.limit) {
    score.leaf = leaf.name;
    score.deviation = deviation;
    score.limit = limit;
  }
}

class Judgement {
 public:
  Judgement(std::span<const RankDump> dumps, bool world_must_be_known)
      : dumps_(dumps), world_must_be_known_(world_must_be_known), out_(dumps.size()) {}

  std::vector<CollectiveScores> Run() {
    for (size_t i = 0; i < dumps_.size(); ++i) {
      auto run = ReadRun(dumps_[i].dump_json, "Distributed.");
      if (run.ok()) readable_.emplace(dumps_[i].rank, i);
      runs_.push_back(run.ok() ? std::move(run).value() : std::make_unique<culprit::Run>());
    }
    for (size_t i = 0; i < dumps_.size(); ++i) Collect(i);
    for (auto& [key, calls] : groups_) Group(key, calls);
    return std::move(out_);
  }

 private:
  struct Key {
    std::vector<int64_t> ranks;  // of the group, in its order
    std::string_view api;
    bool operator<(const Key& o) const { return ranks != o.ranks ? ranks < o.ranks : api < o.api; }
  };
  using Calls = std::map<int64_t, std::vector<Member>>;  // by rank

  // Entries by group and API; those that cannot be judged anyway get their reason.
  void Collect(size_t d) {
    const culprit::Run& run = *runs_[d];
    for (uint32_t e = 0; e < run.entries.size(); ++e) {
      const Entry& entry = run.entries[e];
      if (entry.kind != Kind::kApiForward) continue;
      CollectiveScore& score = out_[d][entry.name];
      const Collective* kind = CollectiveOf(entry.last);
      if (kind == nullptr) {
        score.reason = "this kind is not judged across ranks";
        continue;
      }
      std::vector<int64_t> ranks = GroupOf(d, e, *kind);
      if (ranks.empty()) {
        score.reason = "the ranks of its group are not known";
        continue;
      }
      Member member{d, e, dumps_[d].rank, 0};
      const std::string_view digits = entry.base.substr(entry.base.rfind('.') + 1);
      std::from_chars(digits.data(), digits.data() + digits.size(), member.number);
      groups_[{std::move(ranks), kind->name}][member.rank].push_back(member);
    }
  }

  std::vector<int64_t> GroupOf(size_t d, uint32_t entry, const Collective& kind) {
    const Leaf* group = Arguments(*runs_[d], entry).Argument(kind.group, "group");
    if (group != nullptr && group->kind != LeafKind::kNull) return RanksOf(group->text);
    if (!world_) {
      int64_t world = WorldOf(dumps_[d].dump_json);
      const auto n = static_cast<int64_t>(dumps_.size());
      const bool whole =
          std::ranges::all_of(dumps_, [&](const RankDump& r) { return r.rank >= 0 && r.rank < n; });
      if (world == 0 && whole && !world_must_be_known_) world = n;
      world_ = world;
    }
    // One more than there are dumps is enough to see that one is missing, whatever the footer says.
    const auto most = static_cast<int64_t>(dumps_.size()) + 1;
    std::vector<int64_t> out(static_cast<size_t>(std::clamp<int64_t>(*world_, 0, most)));
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<int64_t>(i);
    return out;
  }

  void Group(const Key& key, Calls& calls) {
    std::string reason;
    for (const int64_t rank : key.ranks) {
      if (!readable_.contains(rank)) {
        reason = fmt::format("rank {} of its group has no dump here", rank);
        break;
      }
    }
    size_t count = calls.begin()->second.size();
    if (reason.empty() &&
        (calls.size() != key.ranks.size() ||
         std::ranges::any_of(calls, [&](const auto& c) { return c.second.size() != count; }))) {
      reason = "the ranks of its group made other calls";
    }
    for (auto& [rank, members] : calls) {
      if (!reason.empty()) {
        for (const Member& m : members) ScoreOf(m).reason = reason;
      }
      std::ranges::sort(members, {}, &Member::number);
    }
    if (!reason.empty()) return;
    const Collective& kind = *CollectiveOf(key.api);
    for (size_t k = 0; k < count; ++k) {
      std::vector<Member> call;
      for (const int64_t rank : key.ranks) {
        const auto it = calls.find(rank);
        if (it != calls.end()) call.push_back(it->second[k]);
      }
      const std::string why = call.size() == key.ranks.size()
                                  ? Call(kind, key, call)
                                  : "the ranks of its group made other calls";
      if (why.empty()) continue;
      for (const Member& m : call) {
        if (ScoreOf(m).leaf.empty()) ScoreOf(m).reason = why;
      }
    }
  }

  CollectiveScore& ScoreOf(const Member& m) {
    return out_[m.dump][runs_[m.dump]->entries[m.entry].name];
  }

  Arguments ArgumentsOf(const Member& m) const { return {*runs_[m.dump], m.entry}; }

  // Tensors of a parameter. An empty list: something has neither elements nor a sketch.
  std::vector<Values> Read(const Member& m, Role role, const Parameter& p) const {
    std::vector<Values> out;
    for (const Leaf* leaf : ArgumentsOf(m).Leaves(role, p)) {
      std::optional<Values> values;
      if (leaf->kind == LeafKind::kTensor) values = ValuesOf(*runs_[m.dump], *leaf);
      if (!values) return {};
      out.push_back(std::move(*values));
    }
    return out;
  }

  // The place in the group of `src` or `dst`, which are ranks of the world, or of `group_src`.
  std::optional<size_t> EndOf(const Collective& kind, const Key& key, const Member& m) const {
    const bool source = kind.form == Form::kBroadcast;
    const Arguments arguments = ArgumentsOf(m);
    const Leaf* end = arguments.Argument(kind.end, source ? "src" : "dst");
    if (end != nullptr && end->kind == LeafKind::kNumber) {
      const auto it = std::ranges::find(key.ranks, static_cast<int64_t>(end->number));
      if (it == key.ranks.end()) return std::nullopt;
      return static_cast<size_t>(it - key.ranks.begin());
    }
    constexpr int kByName = 1000;  // no positional place
    end = arguments.Argument(kByName, source ? "group_src" : "group_dst");
    if (end == nullptr || end->kind != LeafKind::kNumber || !(end->number >= 0) ||
        end->number >= static_cast<double>(key.ranks.size()))
      return std::nullopt;
    return static_cast<size_t>(end->number);
  }

  std::string_view OperationOf(const Collective& kind, const Member& m) const {
    const Leaf* op = ArgumentsOf(m).Argument(kind.op, "op");
    return op == nullptr || op->text.empty() ? "SUM" : std::string_view(op->text);
  }

  // What every rank should have received: one list per rank, of one value per result. Ranks
  // without a result to judge have an empty list.
  struct Expected {
    std::vector<std::vector<Combined>> of_rank;
    std::string reason;
  };

  Expected ExpectedOf(const Collective& kind, const Key& key,
                      const std::vector<Member>& call) const {
    Expected out;
    std::vector<std::vector<Values>> given;
    for (const Member& m : call) given.push_back(Read(m, Role::kInput, kind.given));
    const size_t n = call.size();
    out.of_rank.resize(n);
    std::optional<size_t> end;
    if (kind.end >= 0) {
      end = EndOf(kind, key, call.front());
      if (!end) out.reason = "its source or destination was not recorded";
    }
    const size_t each = kind.form == Form::kScatter ? n : 1;
    for (size_t r = 0; r < n && out.reason.empty(); ++r) {
      if (kind.form == Form::kBroadcast && r != *end) continue;
      if (given[r].size() != each)
        out.reason = "what a rank gave has neither elements nor a sketch";
    }
    if (!out.reason.empty()) return out;
    const auto reduced = [&](size_t part) {
      std::vector<const Values*> parts;
      for (const auto& g : given) parts.push_back(&g[part]);
      return Reduce(parts, OperationOf(kind, call.front()));
    };
    const auto copy = [](const Values& v) { return Combined{v, v.Norm(), ""}; };
    Combined whole;
    if (kind.form == Form::kReduce || kind.form == Form::kReduceTo || kind.form == Form::kSplit) {
      whole = reduced(0);
      if (kind.form == Form::kSplit) CutWhole(whole, n);
    } else if (kind.form == Form::kGatherInto) {
      whole = Join(given);
    }
    if (!whole.reason.empty()) out.reason = whole.reason;
    for (size_t r = 0; r < n && out.reason.empty(); ++r) {
      switch (kind.form) {
        case Form::kReduce:
        case Form::kGatherInto:
          out.of_rank[r].push_back(whole);
          break;
        case Form::kReduceTo:
          if (r == *end) out.of_rank[r].push_back(whole);
          break;
        case Form::kBroadcast:
          out.of_rank[r].push_back(copy(given[*end].front()));
          break;
        case Form::kGather:
          for (const auto& g : given) out.of_rank[r].push_back(copy(g.front()));
          break;
        case Form::kScatter:
          out.of_rank[r].push_back(reduced(r));
          out.reason = out.of_rank[r].back().reason;
          break;
        case Form::kSplit:
          out.of_rank[r].push_back(Part(whole, r, n));
          break;
      }
    }
    return out;
  }

  static void CutWhole(Combined& whole, size_t n) {
    if (!whole.reason.empty()) return;
    if (whole.values.slots) whole.reason = "a sketch says nothing of a part";
    if (whole.values.x.size() % n != 0)
      whole.reason = "what was given cannot be cut into equal parts";
  }

  static Combined Part(const Combined& whole, size_t r, size_t n) {
    Combined out = whole;
    const auto size = static_cast<ptrdiff_t>(whole.values.x.size() / n);
    const auto from = whole.values.x.begin() + static_cast<ptrdiff_t>(r) * size;
    out.values.x.assign(from, from + size);
    out.values.elements = size;
    return out;
  }

  static Combined Join(const std::vector<std::vector<Values>>& given) {
    Combined out;
    out.values.sixteen = given.front().front().sixteen;
    for (const auto& g : given) {
      const Values& v = g.front();
      if (v.slots) out.reason = "a sketch says nothing of a part";
      out.values.x.insert(out.values.x.end(), v.x.begin(), v.x.end());
    }
    out.values.elements = static_cast<int64_t>(out.values.x.size());
    out.scale = out.values.Norm();
    return out;
  }

  // Fills the scores of one call on all ranks; a reason when it cannot be judged.
  std::string Call(const Collective& kind, const Key& key, const std::vector<Member>& call) {
    const Expected expected = ExpectedOf(kind, key, call);
    if (!expected.reason.empty()) return expected.reason;
    for (size_t r = 0; r < call.size(); ++r) {
      const std::vector<Combined>& wanted = expected.of_rank[r];
      CollectiveScore& score = ScoreOf(call[r]);
      if (wanted.empty()) {
        score.reason = "its result is not defined on this rank";
        continue;
      }
      const std::vector<const Leaf*> leaves =
          ArgumentsOf(call[r]).Leaves(Role::kOutput, kind.result);
      const std::vector<Values> found = Read(call[r], Role::kOutput, kind.result);
      if (found.size() != wanted.size() || leaves.size() != wanted.size()) {
        score.reason = "its result has neither elements nor a sketch";
        continue;
      }
      for (size_t i = 0; i < wanted.size() && score.reason.empty(); ++i) {
        if (Alike(found[i], wanted[i].values)) {
          Put(score, *leaves[i], found[i], wanted[i]);
        } else {
          score = {};
          score.reason = "its result has another size than its inputs say";
        }
      }
    }
    return {};
  }

  std::span<const RankDump> dumps_;
  bool world_must_be_known_;
  std::vector<CollectiveScores> out_;
  std::vector<std::unique_ptr<culprit::Run>> runs_;
  std::map<int64_t, size_t> readable_;  // rank -> index
  std::map<Key, Calls> groups_;
  std::optional<int64_t> world_;
};

}  // namespace

std::vector<CollectiveScores> JudgeCollectives(std::span<const RankDump> dumps,
                                               bool world_must_be_known) {
  return Judgement(dumps, world_must_be_known).Run();
}

}  // namespace msprobe::culprit
