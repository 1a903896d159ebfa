#include "culprit/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.h"

namespace msprobe::culprit {
namespace {

constexpr double kFrontFactor = 8;  // nu beyond
constexpr double kLargestFront = 0.01, kLargestFront16 = 0.3;
constexpr size_t kNext = 6;  // calls after a gap that are looked at

bool IsLate(FindingKind k) {  // consequences, after the first finding
  return k == FindingKind::kState || k == FindingKind::kGlue || k == FindingKind::kWired ||
         k == FindingKind::kOutput;
}

}  // namespace

double Judge::Noise() const {
  return std::max(case_.sixteen ? kNoise16 : kNoise, kFrontFactor * front_);
}

std::string Judge::Where(const Finding& f) const {
  return f.code.empty() ? std::string() : " (" + f.code + ")";
}

Finding Judge::Make(FindingKind kind, Pair p, const std::string& leaf, int rule) const {
  Finding f;
  f.kind = kind;
  f.entry = case_.target.entries[p.t].name;
  if (p.g != kNowhere) f.golden_entry = case_.golden.entries[p.g].name;
  f.leaf = leaf;
  f.rule = rule;
  auto code = case_.target.code.find(f.entry);
  if (code == case_.target.code.end()) {  // a gradient: the call it belongs to
    code = case_.target.code.find(std::string(case_.target.entries[p.t].base) + ".forward");
  }
  if (code != case_.target.code.end()) f.code = code->second;
  return f;
}

bool IsCast(const Entry& e) {
  constexpr std::array<std::string_view, 7> kCasts = {"to",     "type", "type_as", "float",
                                                      "double", "half", "bfloat16"};
  return std::ranges::find(kCasts, e.last) != kCasts.end();
}

// Rule 11. A cast to the type that the tensor has already returns the tensor itself and has no
// gradient of its own: the record is its producer's. Where one side only does so, their gradients
// do not correspond.
bool Judge::HandedOnOneSide(Pair p) const {
  const Entry& e = case_.target.entries[p.t];
  if (e.kind != Kind::kApiBackward || !IsCast(e)) return false;
  const auto hands_on = [](const Run& run, std::string_view base) {
    const uint32_t forward = run.Find(std::string(base) + ".forward");
    if (forward == kNowhere) return false;
    const Leaf* in = run.FindLeaf(forward, Role::kInput, "input.0");
    const Leaf* out = run.FindLeaf(forward, Role::kOutput, "output.0");
    return in != nullptr && out != nullptr && in->dtype == out->dtype;
  };
  return hands_on(case_.target, e.base) != hands_on(case_.golden, case_.golden.entries[p.g].base);
}

void Judge::Walk(const Scores& scores) {
  scores_ = &scores;
  const auto size = static_cast<uint32_t>(case_.target.entries.size());
  for (uint32_t t = 0; t < size && !stopped_; ++t) {
    const Entry& e = case_.target.entries[t];
    std::vector<Finding> found;
    GroupsAt(t, found);
    const uint32_t g = case_.alignment.of_target[t];
    const bool container = (e.kind == Kind::kModuleForward || e.kind == Kind::kModuleBackward) &&
                           case_.full.contains(e.base);
    // The gradient of a layer of one or two calls: their records may lack the part that leaves it.
    const bool layer =
        container && e.kind == Kind::kModuleBackward && !case_.branches.contains(e.base);
    if (g != kNowhere && layer) Grown({t, g}, found);
    if (g != kNowhere && container && e.kind == Kind::kModuleForward) Returned({t, g}, found);
    if (g != kNowhere && !container && !HandedOnOneSide({t, g})) {
      const Pair p{t, g};
      Arguments(p, found);
      if (stopped_) break;
      if (e.kind == Kind::kParameterGrad) {
        ParameterGrads(p, found);
      } else {
        Introduced(p, found);
        Collective(p, found);
        Grown(p, found);
      }
      if (e.kind == Kind::kApiForward) MissingGradient(p, found);
      ++report_.judged;
      Follow(p, found.empty());
    }
    Take(found, t);
  }
  std::vector<Finding> found;
  if (!stopped_) GroupsAt(kNowhere, found);
  // A gradient that is missing, or a sum of gradients, follows from anything else that was found.
  if (!stopped_ && report_.findings.empty() && found.empty()) found = std::move(deferred_);
  Take(found, size);
  report_.front = front_;
  report_.usual = UsualDeviation();
  if (report_.verdict != Verdict::kNotJudged) {
    report_.verdict = report_.findings.empty() ? Verdict::kNone : Verdict::kFound;
  }
}

// Deviations of results that nothing was found in move the front on.
void Judge::Follow(Pair p, bool clean) {
  const Entry& e = case_.target.entries[p.t];
  double largest = 0;
  for (uint32_t i = 0; i < e.count; ++i) {
    const Leaf& t = case_.target.leaves[e.first + i];
    if (t.role == Role::kInput || t.role == Role::kParameter || t.kind != LeafKind::kTensor ||
        !t.floating)
      continue;
    const Leaf* g = case_.golden.FindLeaf(p.g, t.role, t.name);
    if (g == nullptr || g->kind != LeafKind::kTensor || g->shape != t.shape) continue;
    const Distance& d = case_.distances.Between(t, *g);
    if (!d.known() || d.equal || d.classes) continue;
    largest = std::max(largest, d.absolute / std::max(ScaleOf(p, *g, d.norm), 1e-300));
  }
  if (!clean) return;
  if (!report_.findings.empty() || input_.found_before) {
    if (largest > Noise()) Consequence(e.name);
    return;
  }
  if (largest <= (case_.sixteen ? kLargestFront16 : kLargestFront))
    front_ = std::max(front_, largest);
}

// Entries come in order: what is told twice is told twice in a row. A finding does not follow from
// itself.
void Judge::Consequence(const std::string& entry) {
  if (!report_.followers.empty() && report_.followers.back() == entry) return;
  if (!report_.findings.empty() && report_.findings.back().entry == entry) return;
  report_.followers.push_back(entry);
  report_.consequences = report_.followers.size();
}

// Puts the findings of one place into the report, in the order of culprit.md 6.12.
void Judge::Take(std::vector<Finding>& found, uint64_t place) {
  std::stable_sort(found.begin(), found.end(), [](const Finding& a, const Finding& b) {
    const auto rank = [](const Finding& f) {
      return f.kind == FindingKind::kState || f.kind == FindingKind::kGlue ||
                     f.kind == FindingKind::kWired
                 ? static_cast<int>(FindingKind::kState)
                 : static_cast<int>(f.kind);
    };
    return rank(a) < rank(b);
  });
  for (Finding& f : found) {
    f.place = place;
    const bool first_use = f.reason_key.starts_with("parameter:");
    const bool late = !report_.findings.empty() || input_.found_before;
    if (late && IsLate(f.kind) && (!first_use || input_.found_before)) {
      Consequence(f.entry);
      continue;
    }
    const std::string line =
        fmt::format("{}|{}|{}", static_cast<int>(f.kind), PartsOf(f.entry).api, f.reason_key);
    if (f.kind != FindingKind::kStructure && !first_use) {
      if (const auto it = lines_.find(line); it != lines_.end()) {
        ++report_.findings[it->second].count;
        continue;
      }
    }
    lines_[line] = report_.findings.size();
    report_.findings.push_back(std::move(f));
  }
}

// ---- structure (rule 6)

Finding Judge::StructureFinding(uint32_t group, int rule) {
  const Alignment::Group& g = case_.alignment.groups[group];
  told_groups_.insert(group);
  Finding f;
  f.kind = FindingKind::kStructure;
  f.rule = rule;
  if (!g.target.empty()) {
    f.entry = case_.target.entries[g.target.front()].name;
  } else if (g.place != kNowhere) {
    f.entry = case_.target.entries[g.place].name;
  }
  if (!g.golden.empty()) f.golden_entry = case_.golden.entries[g.golden.front()].name;
  if (const auto it = case_.target.code.find(f.entry); it != case_.target.code.end())
    f.code = it->second;
  f.numbers = {{"extra", static_cast<double>(g.target.size())},
               {"missing", static_cast<double>(g.golden.size())}};
  const auto names = [](size_t n) {
    return n == 1 ? std::string("call") : fmt::format("{} calls", n);
  };
  if (g.golden.empty()) {
    f.sentence = fmt::format(
        "{} is {} that the golden run does not make{}, and what follows deviates.",
        VisibleText(f.entry),
        g.target.size() == 1 ? "a call" : fmt::format("the first of {} calls", g.target.size()),
        Where(f));
  } else if (g.target.empty()) {
    f.sentence = fmt::format(
        "Before {}{} the golden run makes {} that the target does not ({}), and what follows "
        "deviates.",
        f.entry.empty() ? "the end" : VisibleText(f.entry), Where(f),
        g.golden.size() == 1 ? "a call" : names(g.golden.size()), VisibleText(f.golden_entry));
  } else {
    f.sentence = fmt::format(
        "From {}{} on the target makes {} where the golden run makes {} ({}), and what follows "
        "deviates.",
        VisibleText(f.entry), Where(f), names(g.target.size()), names(g.golden.size()),
        VisibleText(f.golden_entry));
  }
  f.reason_key = fmt::format("group {}", group);
  return f;
}

// Do the next calls after a gap deviate, before anything else was found?
bool Judge::NextDeviate(uint32_t place) {
  size_t seen = 0;
  const auto size = static_cast<uint32_t>(case_.target.entries.size());
  for (uint32_t t = place; t < size && seen < kNext; ++t) {
    const Entry& e = case_.target.entries[t];
    const uint32_t g = case_.alignment.of_target[t];
    if (e.kind != Kind::kApiForward || g == kNowhere) continue;
    ++seen;
    for (uint32_t i = e.first; i < e.first + e.count; ++i) {
      const Leaf& a = case_.target.leaves[i];
      if (a.role != Role::kInput || a.kind != LeafKind::kTensor) continue;
      const Leaf* b = case_.golden.FindLeaf(g, Role::kInput, a.name);
      if (b == nullptr || b->kind != LeafKind::kTensor) continue;
      if (a.shape != b->shape) return true;
      const Distance& d = case_.distances.Between(a, *b);
      // A parameter that deviates is another matter.
      const bool comes = a.origin != kNowhere || !case_.target_sources.Of(t, a).empty();
      if (comes && d.known() && d.relative > Noise()) return true;
    }
  }
  return false;
}

// Does the module make other calls than in the golden run, and return the same, or hand the same
// gradients on? Then how its calls are made and what they receive has nothing to say: a loop and
// its closed form, a fused call and its parts. `module`: its forward or backward entry.
bool Judge::IsAnotherWay(const std::string& module) {
  if (module.empty()) return false;
  if (!other_calls_known_) {
    other_calls_known_ = true;
    const auto note = [this](const Run& run, const std::vector<uint32_t>& calls) {
      for (const uint32_t i : calls) {
        const uint32_t parent = run.Find(run.entries[i].parent);
        if (parent != kNowhere) other_calls_.insert(run.entries[parent].base);
      }
    };
    for (const Alignment::Group& g : case_.alignment.groups) {
      note(case_.target, g.target);
      note(case_.golden, g.golden);
    }
  }
  if (other_calls_.empty()) return false;
  uint32_t t = case_.target.Find(module);
  uint32_t g = t == kNowhere ? kNowhere : case_.alignment.of_target[t];
  constexpr std::string_view kBackward = ".backward.";
  if (const size_t at = module.rfind(kBackward); g == kNowhere && at != std::string::npos) {
    // A gradient of the module that one run lacks: what it returned stands for it.
    t = case_.target.Find(std::string(module).replace(at, kBackward.size(), ".forward."));
    g = t == kNowhere ? kNowhere : case_.alignment.of_target[t];
  }
  if (g == kNowhere || !other_calls_.contains(case_.target.entries[t].base)) return false;
  if (!ResultsAgree({t, g}, 1)) return false;
  // A norm of a norm returns the same, but its weight was used twice.
  constexpr double kFar = 100;
  const std::string gradients = std::string(case_.target.entries[t].base) + ".parameters_grad.0";
  const uint32_t pt = case_.target.Find(gradients), pg = case_.golden.Find(gradients);
  return pt == kNowhere || pg == kNowhere || ResultsAgree({pt, pg}, kFar);
}

// Do all results deviate by at most so many times nu, and is there one?
bool Judge::ResultsAgree(Pair p, double times) {
  const Entry& e = case_.target.entries[p.t];
  bool any = false;
  for (uint32_t i = e.first; i < e.first + e.count; ++i) {
    const Leaf& a = case_.target.leaves[i];
    if (a.role != Role::kOutput || a.kind != LeafKind::kTensor) continue;
    const Leaf* b = case_.golden.FindLeaf(p.g, a.role, a.name);
    if (b == nullptr || b->kind != LeafKind::kTensor || a.shape != b->shape) return false;
    const Distance& d = case_.distances.Between(a, *b);
    if (!d.known() || d.classes) return false;
    if (d.absolute > times * Noise() * std::max(ScaleOf(p, *b, d.norm), 1e-300)) return false;
    any = true;
  }
  return any;
}

void Judge::GroupsAt(uint32_t place, std::vector<Finding>& found) {
  const auto& groups = case_.alignment.groups;
  while (next_group_ < groups.size() && groups[next_group_].place <= place &&
         (groups[next_group_].place != kNowhere || place == kNowhere)) {
    const auto group = static_cast<uint32_t>(next_group_++);
    if (told_groups_.contains(group) || !report_.findings.empty() || input_.found_before) continue;
    const auto& calls = groups[group];
    const bool extra = !calls.target.empty();
    const Run& run = extra ? case_.target : case_.golden;
    if (IsAnotherWay(run.entries[extra ? calls.target.front() : calls.golden.front()].parent)) {
      continue;
    }
    if (place != kNowhere && NextDeviate(place)) found.push_back(StructureFinding(group, 6));
  }
}

namespace {

// relu_, __iadd__: by its name the call writes into its first argument.
bool IsInPlace(std::string_view last) {
  const bool operation = last.starts_with("__");
  return operation ? last.starts_with("__i") : last.ends_with("_");
}

// Does a later call write into a result of `entry`?
bool IsWrittenInto(const Run& run, const Provenance& sources, uint32_t entry) {
  for (uint32_t later = entry + 1; later < run.entries.size(); ++later) {
    const Entry& e = run.entries[later];
    if (e.kind != Kind::kApiForward) continue;
    for (uint32_t i = e.first; i < e.first + e.count; ++i) {
      const Leaf& before = run.leaves[i];
      if (before.role != Role::kInput || sources.ByStorage(before).entry != entry) continue;
      const bool first = before.name == "input.0" && IsInPlace(e.last);
      if (first || run.FindLeaf(later, Role::kMutated, before.name) != nullptr) return true;
    }
  }
  return false;
}

}  // namespace

void Judge::MissingGradient(Pair p, std::vector<Finding>& found) {
  const std::string t = std::string(case_.target.entries[p.t].base) + ".backward";
  const std::string g = std::string(case_.golden.entries[p.g].base) + ".backward";
  const bool in_t = case_.target.Find(t) != kNowhere;
  const bool in_g = case_.golden.Find(g) != kNowhere;
  if (in_t == in_g || !report_.findings.empty() || input_.found_before || !found.empty()) return;
  // A run that recorded no gradient at all was recorded otherwise.
  const auto any = [](const Run& r) {
    return std::any_of(r.entries.begin(), r.entries.end(),
                       [](const Entry& e) { return e.kind == Kind::kApiBackward; });
  };
  if (!any(case_.target) || !any(case_.golden)) return;
  // What is written into afterwards is another tensor for autograd, with a gradient of its own.
  if (in_t ? IsWrittenInto(case_.golden, case_.golden_sources, p.g)
           : IsWrittenInto(case_.target, case_.target_sources, p.t)) {
    return;
  }
  Finding f = Make(FindingKind::kStructure, p, "", 6);
  if (in_t) f.entry = t;
  f.golden_entry = in_g ? g : f.golden_entry;
  f.sentence = fmt::format("A gradient of {}{} was recorded in the {} only.",
                           VisibleText(case_.target.entries[p.t].name), Where(f),
                           in_t ? "target" : "golden run");
  f.reason_key = "gradient";
  if (deferred_.empty()) deferred_.push_back(std::move(f));
}

}  // namespace msprobe::culprit
