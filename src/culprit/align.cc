#include "culprit/align.h"

#include <algorithm>
#include <string>
#include <unordered_set>

#include "tensor/view.h"

namespace msprobe::culprit {
namespace {

// What calls are told apart by; each level says less.
enum class Level : uint8_t { kShapes, kParent, kApi };
constexpr Level kLevels[] = {Level::kShapes, Level::kParent, Level::kApi};

// Module paths without wrappers and call numbers: `Module.module.fc.Linear.forward.0` ->
// `.fc.Linear`.
std::string ModuleKey(std::string_view name) {
  const std::string_view api = PartsOf(name).api;
  std::string out;
  size_t begin = 0;
  while (begin <= api.size()) {
    const size_t dot = std::min(api.find('.', begin), api.size());
    const std::string_view part = api.substr(begin, dot - begin);
    if (part != "module" && part != "_orig_mod" && part != "_fsdp_wrapped_module") {
      out += '.';
      out += part;
    }
    begin = dot + 1;
  }
  return out;
}

uint64_t TokenOf(const Run& run, const Entry& e, Level level) {
  std::string text(e.api);
  // Functions that are one object under two names.
  if (text == "Torch.conv1d" || text == "Torch.conv2d" || text == "Torch.conv3d")
    text.replace(0, 5, "Functional");
  if (level != Level::kApi) {
    text += '|';
    text += ModuleKey(e.parent);
  }
  if (level == Level::kShapes) {
    for (uint32_t i = e.first; i < e.first + e.count; ++i) {
      const Leaf& leaf = run.leaves[i];
      if (leaf.role != Role::kInput || leaf.kind != LeafKind::kTensor) continue;
      text += '|';
      text += ShapeText(leaf.shape);
    }
  }
  return std::hash<std::string>()(text);
}

class Aligner {
 public:
  Aligner(const Run& target, const Run& golden, const Distances& distances)
      : target_(target), golden_(golden), distances_(distances) {}

  Alignment Run() {
    out_.of_target.assign(target_.entries.size(), kNowhere);
    out_.of_golden.assign(golden_.entries.size(), kNowhere);
    calls_t_ = Calls(target_);
    calls_g_ = Calls(golden_);
    partner_.assign(calls_t_.size(), kNowhere);
    for (const Level level : kLevels) Pass(level);
    Slide();
    for (uint32_t i = 0; i < calls_t_.size(); ++i) {
      if (partner_[i] != kNowhere) Join(calls_t_[i], calls_g_[partner_[i]]);
    }
    Groups();
    Others();
    return std::move(out_);
  }

 private:
  static std::vector<uint32_t> Calls(const culprit::Run& run) {
    std::vector<uint32_t> out;
    for (uint32_t i = 0; i < run.entries.size(); ++i) {
      if (run.entries[i].kind == Kind::kApiForward) out.push_back(i);
    }
    return out;
  }

  void Join(uint32_t t, uint32_t g) {
    out_.of_target[t] = g;
    out_.of_golden[g] = t;
  }

  // Aligns what lies between the calls that already have partners.
  void Pass(Level level) {
    uint32_t t = 0;
    uint32_t g = 0;
    const auto size = static_cast<uint32_t>(calls_t_.size());
    while (t <= size) {
      uint32_t end = t;
      while (end < size && partner_[end] == kNowhere) ++end;
      const uint32_t g_end = end < size ? partner_[end] : static_cast<uint32_t>(calls_g_.size());
      if (end > t && g_end > g) Between(level, t, end, g, g_end);
      if (end == size) break;
      t = end + 1;
      g = g_end + 1;
    }
  }

  void Between(Level level, uint32_t t, uint32_t t_end, uint32_t g, uint32_t g_end) {
    std::vector<uint64_t> a;
    std::vector<uint64_t> b;
    for (uint32_t i = t; i < t_end; ++i)
      a.push_back(TokenOf(target_, target_.entries[calls_t_[i]], level));
    for (uint32_t i = g; i < g_end; ++i)
      b.push_back(TokenOf(golden_, golden_.entries[calls_g_[i]], level));
    for (const auto& [x, y] : Pairs(a, b)) {
      const auto i = static_cast<uint32_t>(t + x), k = static_cast<uint32_t>(g + y);
      if (level != Level::kApi || !InOtherModules(calls_t_[i], calls_g_[k])) partner_[i] = k;
    }
  }

  // Do the calls belong to two modules that both runs have? Then neither is the other.
  bool InOtherModules(uint32_t t, uint32_t g) {
    if (modules_t_.empty()) {
      for (const uint32_t c : calls_t_) modules_t_.insert(ModuleKey(target_.entries[c].parent));
      for (const uint32_t c : calls_g_) modules_g_.insert(ModuleKey(golden_.entries[c].parent));
    }
    const std::string a = ModuleKey(target_.entries[t].parent);
    const std::string b = ModuleKey(golden_.entries[g].parent);
    return a != b && modules_g_.contains(a) && modules_t_.contains(b);
  }

  // How badly the inputs of two calls agree, by recorded figures.
  double Cost(uint32_t t, uint32_t g) const {
    const Entry& a = target_.entries[calls_t_[t]];
    const Entry& b = golden_.entries[calls_g_[g]];
    double cost = 0;
    for (uint32_t i = 0; i < std::min(a.count, b.count); ++i) {
      const Leaf& x = target_.leaves[a.first + i];
      const Leaf& y = golden_.leaves[b.first + i];
      if (x.role != Role::kInput || y.role != Role::kInput) break;
      if (x.kind != LeafKind::kTensor || y.kind != LeafKind::kTensor) {
        cost += x.kind != y.kind || x.text != y.text ? 1 : 0;
        continue;
      }
      const Distance d = distances_.Cheap(x, y);
      cost += d.known() ? std::min(1.0, d.relative) : 1;
    }
    return cost;
  }

  // Gaps on one side beside equal calls: which of a run of equal calls is the one too many?
  void Slide() {
    const std::vector<uint64_t> a = Tokens(target_, calls_t_);
    const std::vector<uint64_t> b = Tokens(golden_, calls_g_);
    std::vector<uint32_t> back(calls_g_.size(), kNowhere);
    for (uint32_t i = 0; i < partner_.size(); ++i) {
      if (partner_[i] != kNowhere) back[partner_[i]] = i;
    }
    SlideOn(a, partner_, back, [this](uint32_t x, uint32_t y) { return Cost(x, y); });
    SlideOn(b, back, partner_, [this](uint32_t x, uint32_t y) { return Cost(y, x); });
  }

  static std::vector<uint64_t> Tokens(const culprit::Run& run, const std::vector<uint32_t>& calls) {
    std::vector<uint64_t> out;
    out.reserve(calls.size());
    for (const uint32_t c : calls) out.push_back(TokenOf(run, run.entries[c], Level::kShapes));
    return out;
  }

  // `mine`: partners of the side that has the calls too many, `tokens` theirs; `other`: the way
  // back.
  template <class CostFn>
  void SlideOn(const std::vector<uint64_t>& tokens, std::vector<uint32_t>& mine,
               std::vector<uint32_t>& other, const CostFn& cost) {
    const auto size = static_cast<uint32_t>(mine.size());
    uint32_t begin = 0;
    while (begin < size) {
      if (mine[begin] != kNowhere) {
        ++begin;
        continue;
      }
      uint32_t end = begin;
      while (end < size && mine[end] == kNowhere) ++end;
      const uint32_t next = OneGap(tokens, mine, other, begin, end, cost);
      begin = std::max(end, next);
    }
  }

  // The gap [begin, end) may move to the left while the call before it equals its last, and to the
  // right while the call after it equals its first. One pair changes per place.
  template <class CostFn>
  uint32_t OneGap(const std::vector<uint64_t>& tokens, std::vector<uint32_t>& mine,
                  std::vector<uint32_t>& other, uint32_t begin, uint32_t end, const CostFn& cost) {
    const uint32_t length = end - begin;
    const auto size = static_cast<uint32_t>(mine.size());
    uint32_t left = 0;
    while (left < begin && mine[begin - 1 - left] != kNowhere &&
           tokens[begin - 1 - left] == tokens[end - 1 - left] && Spend()) {
      ++left;
    }
    uint32_t right = 0;
    while (end + right < size && mine[end + right] != kNowhere &&
           tokens[end + right] == tokens[begin + right] && Spend()) {
      ++right;
    }
    if (left + right == 0) return end;
    // Begin with the gap as far to the left as it goes, and walk to the right.
    double best = 0;
    double now = 0;
    uint32_t best_at = 0;
    const uint32_t first = begin - left;
    const auto partner_at = [&](uint32_t i) {  // the partner of the i-th pair of the window
      return i < left ? mine[first + i] : mine[end + (i - left)];
    };
    for (uint32_t i = 0; i < left + right; ++i) {
      // The gap passes over one place: its pair belonged to `first + i + length`, now to `first +
      // i`.
      const uint32_t partner = partner_at(i);
      now += cost(first + i, partner) - cost(first + i + length, partner);
      if (now < best - 1e-9) {
        best = now;
        best_at = i + 1;
      }
    }
    std::vector<uint32_t> partners(left + right);
    for (uint32_t i = 0; i < left + right; ++i) partners[i] = partner_at(i);
    for (uint32_t i = 0; i < left + right + length; ++i) mine[first + i] = kNowhere;
    for (uint32_t i = 0; i < left + right; ++i) {
      const uint32_t place = first + (i < best_at ? i : i + length);
      mine[place] = partners[i];
      other[partners[i]] = place;
    }
    return first + left + right + length - right + right;
  }

  // Sliding looks at a bounded number of places, whatever the dumps hold.
  bool Spend() { return budget_ > 0 && budget_-- > 0; }

  void Groups() {
    out_.group_of_target.assign(target_.entries.size(), kNowhere);
    out_.group_of_golden.assign(golden_.entries.size(), kNowhere);
    uint32_t g = 0;
    uint32_t t = 0;
    const auto size = static_cast<uint32_t>(calls_t_.size());
    while (t <= size) {
      Alignment::Group group;
      while (t < size && partner_[t] == kNowhere) group.target.push_back(calls_t_[t++]);
      const uint32_t g_end = t < size ? partner_[t] : static_cast<uint32_t>(calls_g_.size());
      while (g < g_end) group.golden.push_back(calls_g_[g++]);
      if (!group.target.empty() || !group.golden.empty()) {
        group.place = !group.target.empty() ? group.target.front()
                      : t < size            ? calls_t_[t]
                                            : kNowhere;
        for (const uint32_t e : group.target)
          out_.group_of_target[e] = static_cast<uint32_t>(out_.groups.size());
        for (const uint32_t e : group.golden)
          out_.group_of_golden[e] = static_cast<uint32_t>(out_.groups.size());
        out_.groups.push_back(std::move(group));
      }
      ++t;
      ++g;
    }
  }

  void Others() {
    std::unordered_map<std::string, uint32_t> modules;
    for (uint32_t g = 0; g < golden_.entries.size(); ++g) {
      const Entry& e = golden_.entries[g];
      if (e.kind == Kind::kModuleForward || e.kind == Kind::kModuleBackward ||
          e.kind == Kind::kParameterGrad) {
        modules.emplace(NameKey(e), g);
      }
    }
    for (uint32_t t = 0; t < target_.entries.size(); ++t) {
      const Entry& e = target_.entries[t];
      if (e.kind == Kind::kApiBackward) {
        Follow(t, e);
      } else if (e.kind != Kind::kApiForward && e.kind != Kind::kOther) {
        const auto it = modules.find(NameKey(e));
        if (it != modules.end()) Join(t, it->second);
      }
    }
  }

  static std::string NameKey(const Entry& e) {
    const size_t dot = e.name.rfind('.');
    const bool numbered = dot != std::string::npos && dot + 1 < e.name.size() &&
                          e.name[dot + 1] >= '0' && e.name[dot + 1] <= '9';
    return std::to_string(static_cast<int>(e.kind)) + ModuleKey(e.name) +
           (numbered ? e.name.substr(dot) : "");
  }

  void Follow(uint32_t t, const Entry& e) {
    const uint32_t forward = target_.Find(std::string(e.base) + ".forward");
    if (forward == kNowhere) {  // only the gradient was recorded, on both sides perhaps
      const uint32_t g = golden_.Find(e.name);
      if (g != kNowhere && golden_.Find(std::string(e.base) + ".forward") == kNowhere) Join(t, g);
      return;
    }
    const uint32_t partner = out_.of_target[forward];
    if (partner == kNowhere) return;
    const uint32_t g = golden_.Find(std::string(golden_.entries[partner].base) + ".backward");
    if (g != kNowhere) Join(t, g);
  }

  const culprit::Run& target_;
  const culprit::Run& golden_;
  const Distances& distances_;
  Alignment out_;
  std::unordered_set<std::string> modules_t_, modules_g_;  // that calls belong to
  std::vector<uint32_t> calls_t_, calls_g_;                // entries of forward API calls
  std::vector<uint32_t> partner_;                          // index in calls_t_ -> index in calls_g_
  int64_t budget_ = 200'000;
};

}  // namespace

Alignment Align(const Run& target, const Run& golden, const Distances& distances) {
  return Aligner(target, golden, distances).Run();
}

}  // namespace msprobe::culprit
