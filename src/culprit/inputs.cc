// Rules 1, 3, 4 and 5: what entered a call.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "culprit/judge.h"
#include "dump/overwritten.h"

namespace msprobe::culprit {
namespace {

constexpr double kScalarFactor = 8;     // of the front: floats that may stem from a tensor
constexpr double kTrained = 5e-3;       // of parameters after updates
constexpr double kTrainedAlone = 5e-4;  // of one that deviates as no other does
constexpr double kAsNoOther = 30;       // times nearly all others
constexpr double kAsBefore = 100;       // times what parameters deviated by in the step before
constexpr double kPassedOn = 1.5;       // a producer's deviation explains so much of a consumer's
constexpr double kCopyResidual = 1e-5;  // of a scaled copy
constexpr size_t kCopyCandidates = 4000;

// Types of arguments that say where or how, not what.
bool SaysNothing(const Leaf& leaf) { return leaf.kind == LeafKind::kOpaque; }
// Left out or None: the same for nearly all calls.
bool IsAsLeftOut(const Leaf& leaf) { return SaysNothing(leaf) || leaf.kind == LeafKind::kNull; }

// The largest number of some floating type, or infinity: what masks are filled with.
bool IsMask(double v) {
  constexpr double kLargest16 = 65504;
  return std::isinf(v) || std::abs(v) == kLargest16 || std::abs(v) >= 1e30;
}

bool Agree(double a, double b, double tolerance) {
  if (IsMask(a) && IsMask(b)) return std::signbit(a) == std::signbit(b);
  if (std::isnan(a) && std::isnan(b)) return true;
  if (a == b) return true;
  return std::abs(a - b) <= tolerance * std::max(std::abs(a), std::abs(b));
}

std::string TextOf(const Leaf& leaf) {
  if (leaf.kind == LeafKind::kNull) return "None";
  if (leaf.kind == LeafKind::kTensor) return fmt::format("a tensor {}", ShapeText(leaf.shape));
  constexpr size_t kLongest = 60;
  return VisibleText(leaf.text.size() > kLongest ? leaf.text.substr(0, kLongest) + "…" : leaf.text);
}

}  // namespace

bool Judge::ScalarsAgree(const Leaf& t, const Leaf& g) const {
  if (SaysNothing(t) || SaysNothing(g)) return true;
  if (t.kind != g.kind) return false;
  if (t.kind == LeafKind::kNull) return true;
  if (t.kind == LeafKind::kText) return t.text == g.text;
  if (t.type == "float" || g.type == "float")
    return Agree(t.number, g.number, kScalarFactor * front_);
  return t.text == g.text;
}

double Judge::ScaleOf(Pair p, const Leaf& golden, double norm) const {
  const Kind kind = case_.target.entries[p.t].kind;
  if (kind != Kind::kApiBackward && kind != Kind::kModuleBackward && kind != Kind::kParameterGrad)
    return norm;
  const auto it = case_.gradient_scale.find(ShapeText(golden.shape));
  return it == case_.gradient_scale.end() ? norm : std::max(norm, it->second);
}

// Rule 3, and rule 4 for every tensor.
void Judge::Arguments(Pair p, std::vector<Finding>& found) {
  const Entry& e = case_.target.entries[p.t];
  const Entry& ge = case_.golden.entries[p.g];
  const bool forward = e.kind == Kind::kApiForward || e.kind == Kind::kModuleForward;
  if (IsAnotherWay(e.parent)) return;
  const auto argument = [&](const std::string& leaf, const std::string& what) {
    Finding f = Make(FindingKind::kArgument, p, leaf, 3);
    f.sentence = fmt::format("{}{} was called with {}.", VisibleText(e.name), Where(f), what);
    f.reason_key = leaf;
    return f;
  };
  for (uint32_t i = e.first; i < e.first + e.count && !stopped_; ++i) {
    const Leaf& t = case_.target.leaves[i];
    if (t.role != Role::kInput && t.role != Role::kParameter) continue;
    const Leaf* g = case_.golden.FindLeaf(p.g, t.role, t.name);
    if (g == nullptr) {
      if (forward && t.role == Role::kInput && !IsAsLeftOut(t)) {
        found.push_back(argument(
            t.name, fmt::format("{} {}, which the golden run does not give", t.name, TextOf(t))));
      }
      continue;
    }
    if (t.kind != LeafKind::kTensor || g->kind != LeafKind::kTensor) {
      if (!forward || ScalarsAgree(t, *g)) continue;
      Finding f = argument(
          t.name, fmt::format("{} = {}, the golden run with {}", t.name, TextOf(t), TextOf(*g)));
      if (t.kind == LeafKind::kNumber && g->kind == LeafKind::kNumber) {
        f.numbers = {{"value", t.number}, {"golden_value", g->number}};
      }
      found.push_back(std::move(f));
      continue;
    }
    if (forward && t.dtype != g->dtype && (!t.floating || !g->floating)) {
      found.push_back(argument(
          t.name, fmt::format("{} of type {}, the golden run with {}", t.name, t.dtype, g->dtype)));
      continue;
    }
    if (dump::IsOverwritten(e.last, t.name)) continue;
    const Explained explained = Explain(p, t, *g);
    Entering(p, t, explained, found);
  }
  if (forward) {
    for (uint32_t i = ge.first; i < ge.first + ge.count; ++i) {
      const Leaf& g = case_.golden.leaves[i];
      if (g.role != Role::kInput || IsAsLeftOut(g) ||
          case_.target.FindLeaf(p.t, g.role, g.name) != nullptr)
        continue;
      found.push_back(
          argument(g.name, fmt::format("no {}, the golden run with {}", g.name, TextOf(g))));
    }
    if (e.kind == Kind::kApiForward) {
      Gradients(p, found);
      Precision(p, found);
    }
  }
}

// `requires_grad` of inputs whose producers agree: a gradient that was lost, or one too many.
void Judge::Gradients(Pair p, std::vector<Finding>& found) {
  const Entry& e = case_.target.entries[p.t];
  for (uint32_t i = e.first; i < e.first + e.count; ++i) {
    const Leaf& t = case_.target.leaves[i];
    if (t.role != Role::kInput || t.kind != LeafKind::kTensor || !t.floating || t.requires_grad < 0)
      continue;
    const Leaf* g = case_.golden.FindLeaf(p.g, t.role, t.name);
    if (g == nullptr || g->requires_grad < 0 || g->requires_grad == t.requires_grad) continue;
    const std::vector<Producer> from_t = case_.target_sources.Of(p.t, t);
    const std::vector<Producer> from_g = case_.golden_sources.Of(p.g, *g);
    Explained known;
    if (Corresponds(from_t, from_g, known)) {
      if (case_.target.leaves[known.target.leaf].requires_grad !=
          case_.golden.leaves[known.golden.leaf].requires_grad)
        continue;
    } else if (!from_t.empty() || !from_g.empty()) {
      if (!report_.findings.empty()) continue;
    }
    Finding f = Make(FindingKind::kArgument, p, t.name, 3);
    f.sentence =
        fmt::format("{} of {}{} {} gradient, in the golden run it {}.", t.name, VisibleText(e.name),
                    Where(f), t.requires_grad != 0 ? "requires a" : "requires no",
                    t.requires_grad != 0 ? "does not" : "does");
    f.reason_key = "requires_grad";
    found.push_back(std::move(f));
  }
}

bool Judge::Corresponds(const std::vector<Producer>& t, const std::vector<Producer>& g,
                        Explained& out) const {
  for (const Producer& a : t) {
    const uint32_t partner = case_.alignment.of_target[a.entry];
    if (partner == kNowhere) continue;
    for (const Producer& b : g) {
      if (partner != b.entry ||
          case_.target.leaves[a.leaf].name != case_.golden.leaves[b.leaf].name)
        continue;
      out.target = a;
      out.golden = b;
      return true;
    }
  }
  return false;
}

uint32_t Judge::GroupOf(const std::vector<Producer>& t, const std::vector<Producer>& g) const {
  const auto of = [](const Run& run, const std::vector<Producer>& list,
                     const std::vector<uint32_t>& groups) {
    // Modules around the calls produce the same tensors: only calls are in groups.
    for (const Producer& p : list) {
      if (groups[p.entry] != kNowhere) return groups[p.entry];
      const Entry& e = run.entries[p.entry];
      if (e.kind != Kind::kApiBackward) continue;
      const uint32_t forward = run.Find(std::string(e.base) + ".forward");
      if (forward != kNowhere && groups[forward] != kNowhere) return groups[forward];
    }
    return kNowhere;
  };
  const uint32_t group = of(case_.target, t, case_.alignment.group_of_target);
  return group != kNowhere ? group : of(case_.golden, g, case_.alignment.group_of_golden);
}

// The group of a call, on one side only, that takes the result of the call whose gradient `p` is.
// Such a call adds to that gradient, and nothing recorded is the sum.
uint32_t Judge::GroupThatUses(Pair p) {
  if (case_.target.entries[p.t].kind != Kind::kApiBackward) return kNowhere;
  if (!users_known_) {
    users_known_ = true;
    const auto fill = [](const Run& run, const Provenance& sources,
                         const std::vector<uint32_t>& groups,
                         std::unordered_map<uint32_t, uint32_t>& used_by) {
      for (uint32_t i = 0; i < run.entries.size(); ++i) {
        const Entry& e = run.entries[i];
        if (groups[i] == kNowhere || e.kind != Kind::kApiForward) continue;
        for (uint32_t k = e.first; k < e.first + e.count; ++k) {
          if (run.leaves[k].role != Role::kInput) continue;
          for (const Producer& from : sources.Of(i, run.leaves[k])) {
            used_by.try_emplace(from.entry, groups[i]);
          }
        }
      }
    };
    fill(case_.target, case_.target_sources, case_.alignment.group_of_target, used_by_target_);
    fill(case_.golden, case_.golden_sources, case_.alignment.group_of_golden, used_by_golden_);
  }
  const auto of = [](const Run& run, uint32_t backward,
                     const std::unordered_map<uint32_t, uint32_t>& used_by) {
    const uint32_t forward = run.Find(std::string(run.entries[backward].base) + ".forward");
    const auto it = forward == kNowhere ? used_by.end() : used_by.find(forward);
    return it == used_by.end() ? kNowhere : it->second;
  };
  const uint32_t group = of(case_.target, p.t, used_by_target_);
  return group != kNowhere ? group : of(case_.golden, p.g, used_by_golden_);
}

// Does the deviation of the producer's result account for that of the input?
bool Judge::ExplainedByProducer(const Leaf& t, const Leaf& g, const Explained& e) {
  const Leaf& pt = case_.target.leaves[e.target.leaf];
  const Leaf& pg = case_.golden.leaves[e.golden.leaf];
  if (t.has_key && pt.has_key && t.key == pt.key && g.has_key && pg.has_key && g.key == pg.key)
    return true;
  if (pt.elements != pg.elements) return true;
  const Distance d = case_.distances.Between(t, g);
  const Distance& dp = case_.distances.Between(pt, pg);
  if (!dp.known() || dp.classes) return true;
  const bool whole = t.elements == pt.elements;
  // Statistics give lower bounds of both: of a slice they say nothing about the whole.
  if (d.source == Source::kStatistics && !whole) return true;
  double times = 1;
  if (t.elements > pt.elements && pt.elements > 0) {
    times = std::sqrt(static_cast<double>(t.elements) / static_cast<double>(pt.elements));
  }
  const double slack = d.source == Source::kStatistics ? 4 : kPassedOn;
  return d.absolute <= slack * times * dp.absolute + Noise() * d.norm;
}

// What an optimizer makes of rounding after the first step. A step of Adam has the size of the
// learning rate whatever the gradient: where that is zero in exact arithmetic (biases before a
// softmax or a norm) it goes anywhere. So parameters of one axis are not judged in later steps,
// others from kTrained on, and one that deviates as no other does from kTrainedAlone on.
bool Judge::IsTrainedNoise(Pair p, const Leaf& t, double deviation) {
  if (case_.target.step == 0 || t.requires_grad != 1 || t.derived || t.origin != kNowhere) {
    return false;
  }
  if (case_.target.entries[p.t].kind != Kind::kApiForward &&
      case_.target.entries[p.t].kind != Kind::kModuleForward) {
    return false;
  }
  if (t.shape.size() <= 1) return true;
  if (MovedApart()) return false;
  if (deviation <= kTrainedAlone) return true;
  return deviation <= kTrained && deviation <= kAsNoOther * UsualDeviation();
}

// The deviation that three quarters of the parameters of two and more axes stay below, which is
// noise of the updates, unless most of them deviate. Infinite when there are too few to say.
double Judge::UsualDeviation() {
  if (usual_deviation_ >= 0) return usual_deviation_;
  constexpr size_t kFew = 5;
  std::unordered_set<uint64_t> seen;  // contents: each once
  std::vector<double> all;
  for (uint32_t i = 0; i < case_.target.entries.size(); ++i) {
    const Entry& e = case_.target.entries[i];
    const uint32_t partner = case_.alignment.of_target[i];
    if (partner == kNowhere || e.kind != Kind::kApiForward) continue;
    for (uint32_t k = e.first; k < e.first + e.count; ++k) {
      const Leaf& t = case_.target.leaves[k];
      if (t.role != Role::kInput || t.kind != LeafKind::kTensor || !t.floating ||
          t.requires_grad != 1 || t.derived || t.origin != kNowhere || t.shape.size() < 2 ||
          !t.has_key)
        continue;
      const Leaf* g = case_.golden.FindLeaf(partner, t.role, t.name);
      if (g == nullptr || g->shape != t.shape) continue;
      const Distance& d = case_.distances.Between(t, *g);
      if (!d.known() || !seen.insert(t.key).second) continue;
      all.push_back(d.relative);
      usual_is_bound_ = usual_is_bound_ || d.source == Source::kStatistics;
    }
  }
  usual_deviation_ = std::numeric_limits<double>::infinity();
  if (all.size() >= kFew) {
    const auto at = all.begin() + static_cast<std::ptrdiff_t>(all.size() * 3 / 4);
    std::nth_element(all.begin(), at, all.end());
    usual_deviation_ = *at;
  }
  return usual_deviation_;
}

// Most parameters have moved apart since the step before, by more than its rounding explains: not
// the noise of single ones but what the optimizer did. A relative error e of the gradients turns
// the signs of about e of their elements, and with them steps of Adam, so that parameters move
// apart by 2 (rate / |w|) sqrt(e); the rate is taken to be at most a twentieth of |w|. Statistics
// tell about a tenth of it.
bool Judge::MovedApart() {
  if (case_.target.step == 0 || input_.usual < 0 || !std::isfinite(UsualDeviation())) return false;
  const double error = std::max(case_.sixteen ? kNoise16 : kNoise, input_.front);
  const double limit = (usual_is_bound_ ? 0.01 : 0.1) * std::sqrt(error);
  return UsualDeviation() > std::max(limit, kAsBefore * input_.usual);
}

Explained Judge::ExplainShape(Pair p, const Leaf& t, const Leaf& g) {
  Explained out;
  out.deviation = 1;
  const std::vector<Producer> from_t = case_.target_sources.Of(p.t, t);
  const std::vector<Producer> from_g = case_.golden_sources.Of(p.g, g);
  if (Corresponds(from_t, from_g, out)) {
    const bool same =
        case_.target.leaves[out.target.leaf].shape == case_.golden.leaves[out.golden.leaf].shape;
    out.how = same ? Entered::kArgument : Entered::kInherited;
    out.why = fmt::format("{} of shape {}, the golden run with {}", t.name, ShapeText(t.shape),
                          ShapeText(g.shape));
    return out;
  }
  out.group = GroupOf(from_t, from_g);
  if (out.group != kNowhere) {
    out.how = Entered::kStructure;
  } else if (from_t.empty() && from_g.empty()) {
    const bool external = t.requires_grad != 1 && g.requires_grad != 1 && t.origin == kNowhere &&
                          g.origin == kNowhere &&
                          case_.target.entries[p.t].kind == Kind::kApiForward;
    out.how = external && report_.findings.empty() ? Entered::kOtherData : Entered::kState;
    if (external && t.elements == g.elements) out.how = Entered::kInherited;
  } else {
    out.how = from_t.empty() || from_g.empty() ? Entered::kGlue : Entered::kWired;
  }
  return out;
}

Explained Judge::Explain(Pair p, const Leaf& t, const Leaf& g) {
  if (t.shape != g.shape) return ExplainShape(p, t, g);
  Explained out;
  const Distance d = case_.distances.Between(t, g);
  if (!d.known() || d.equal) return out;
  const double scale = ScaleOf(p, g, d.norm);
  out.deviation = !t.floating || d.classes ? 1 : scale > 0 ? d.absolute / scale : 0;
  if (out.deviation <= Noise()) return out;
  const std::vector<Producer> from_t = case_.target_sources.Of(p.t, t);
  const std::vector<Producer> from_g = case_.golden_sources.Of(p.g, g);
  if (Corresponds(from_t, from_g, out)) {
    const Producer a = case_.target_sources.ByStorage(t);
    const Producer b = case_.golden_sources.ByStorage(g);
    const bool stored =
        a.entry == out.target.entry && b.entry == out.golden.entry && a.entry != kNowhere;
    if (stored && case_.target.origins[t.origin].view != case_.golden.origins[g.origin].view &&
        case_.target.leaves[a.leaf].shape == case_.golden.leaves[b.leaf].shape) {
      out.how = Entered::kArgument;
      out.why = fmt::format("{} as another slice or view of {} than in the golden run", t.name,
                            VisibleText(case_.target.entries[a.entry].name));
      out.rule = 4;
      return out;
    }
    out.how = ExplainedByProducer(t, g, out) ? Entered::kInherited : Entered::kGlue;
    if (out.how == Entered::kGlue && IsScaledCopy(p, t, g)) out.how = Entered::kFine;
    return out;
  }
  out.group = GroupOf(from_t, from_g);
  if (out.group != kNowhere) {
    out.how = Entered::kStructure;
    return out;
  }
  if (from_t.empty() && from_g.empty() && IsTrainedNoise(p, t, out.deviation)) return out;
  if (IsScaledCopy(p, t, g)) return out;
  if (from_t.empty() || from_g.empty()) {
    out.group = GroupThatUses(p);
    if (out.group != kNowhere) {
      out.how = Entered::kStructure;
      return out;
    }
  }
  if (!from_t.empty()) out.target = from_t.front();
  if (!from_g.empty()) out.golden = from_g.front();
  out.how = from_t.empty() && from_g.empty()   ? Entered::kState
            : from_t.empty() || from_g.empty() ? Entered::kGlue
                                               : Entered::kWired;
  return out;
}

// Rule 5: the same multiple of two corresponding earlier results (clipping, loss scaling, averaging
// by calls that were not recorded). By the four statistics, which scale together.
bool Judge::IsScaledCopy(Pair p, const Leaf& t, const Leaf& g) const {
  if (std::isnan(t.norm) || std::isnan(g.norm) || t.norm == 0 || g.norm == 0 || t.elements < 2)
    return false;
  const auto scaled = [](const Leaf& x, const Leaf& y, double c) {  // x = c y?
    const double high = c > 0 ? y.max : y.min;
    const double low = c > 0 ? y.min : y.max;
    const double size = std::max({std::abs(x.max), std::abs(x.min), 1e-300});
    return std::abs(x.max - c * high) <= kCopyResidual * size &&
           std::abs(x.min - c * low) <= kCopyResidual * size &&
           std::abs(x.mean - c * y.mean) <= kCopyResidual * size;
  };
  size_t looked = 0;
  for (uint32_t e = p.t; e-- > 0 && looked < kCopyCandidates;) {
    const uint32_t partner = case_.alignment.of_target[e];
    if (partner == kNowhere) continue;
    const Entry& entry = case_.target.entries[e];
    for (uint32_t i = entry.first; i < entry.first + entry.count; ++i, ++looked) {
      const Leaf& a = case_.target.leaves[i];
      if (a.role != Role::kOutput || a.kind != LeafKind::kTensor || a.elements != t.elements ||
          !(a.norm > 0))
        continue;
      const Leaf* b = case_.golden.FindLeaf(partner, Role::kOutput, a.name);
      if (b == nullptr || b->kind != LeafKind::kTensor || b->elements != g.elements ||
          !(b->norm > 0))
        continue;
      for (const double sign : {1.0, -1.0}) {
        const double ct = sign * t.norm / a.norm;
        const double cg = sign * g.norm / b->norm;
        if (std::abs(ct - cg) <= Noise() * std::abs(cg) && scaled(t, a, ct) && scaled(g, *b, cg))
          return true;
      }
    }
  }
  return false;
}

// Another value given to the call: a tensor argument that is another slice, or an index.
Finding Judge::ArgumentFinding(Pair p, const Leaf& t, const Explained& e) {
  Finding f = Make(FindingKind::kArgument, p, t.name, e.rule);
  f.sentence = fmt::format("{}{} was called with {}.", VisibleText(case_.target.entries[p.t].name),
                           Where(f), e.why);
  f.numbers = {{"deviation", e.deviation}, {"limit", Noise()}};
  f.reason_key = t.name;
  return f;
}

// A finding for what entered, if any (rules 1, 4, 6).
// Rule 10: a module with recorded calls inside returns what one of them made. Where it does so in
// the golden run, and the target's is another than the result of the corresponding call, something
// wrote into it on its way out.
void Judge::Returned(Pair p, std::vector<Finding>& found) {
  const Entry& e = case_.target.entries[p.t];
  for (uint32_t i = e.first; i < e.first + e.count; ++i) {
    const Leaf& t = case_.target.leaves[i];
    if (t.role != Role::kOutput || t.kind != LeafKind::kTensor || !t.floating) continue;
    const Leaf* g = case_.golden.FindLeaf(p.g, t.role, t.name);
    if (g == nullptr || g->kind != LeafKind::kTensor || g->shape != t.shape) continue;
    const Distance& d = case_.distances.Between(t, *g);
    if (!d.known() || d.classes || d.relative <= Noise()) continue;
    Explained made;
    for (const Producer& q : case_.golden_sources.Of(p.g, *g)) {
      if (case_.golden.entries[q.entry].kind != Kind::kApiForward) continue;
      const Leaf& pg = case_.golden.leaves[q.leaf];
      made.golden = q;
      made.target.entry = case_.alignment.of_golden[q.entry];
      if (made.target.entry == kNowhere || !pg.has_key || pg.key != g->key) break;
      const Leaf* pt = case_.target.FindLeaf(made.target.entry, pg.role, pg.name);
      if (pt == nullptr || pt->shape != t.shape) break;
      made.target.leaf = static_cast<uint32_t>(pt - case_.target.leaves.data());
      break;
    }
    if (made.target.leaf == kNowhere || ExplainedByProducer(t, *g, made)) continue;
    Finding f = Make(FindingKind::kGlue, p, t.name, 10);
    f.numbers = {{"deviation", d.relative}, {"limit", Noise()}};
    f.sentence = fmt::format(
        "{}{} returned {}, which is not what {} made, as it is in the golden run: code that is not "
        "recorded wrote into it; it deviates by {:.3g} of its size.",
        VisibleText(e.name), Where(f), t.name,
        VisibleText(case_.target.entries[made.target.entry].name), d.relative);
    f.reason_key = t.name;
    found.push_back(std::move(f));
  }
}

// What is said of a tensor that came from nowhere.
std::string Judge::StateText(const Leaf& t, bool gradient) {
  if (gradient) return "which no recorded call made";
  if (t.derived) return "which code that is not recorded made";
  if (t.requires_grad == 1 && MovedApart()) {
    return "which no recorded call made, and so do most parameters: the update before this step "
           "was another one (state of the optimizer, rate, decay, clipping, scale)";
  }
  return "which no recorded call made: parameters, state or data differ";
}

// A parameter at its first use stays a finding of its own, unless most have moved.
std::string Judge::ParameterKey(const Leaf& t) {
  if (MovedApart()) return "parameters";
  return seen_parameters_.insert(t.key).second ? "parameter:" + std::to_string(t.key) : t.name;
}

void Judge::Entering(Pair p, const Leaf& t, const Explained& e, std::vector<Finding>& found) {
  const Entry& entry = case_.target.entries[p.t];
  const bool gradient = entry.kind == Kind::kApiBackward || entry.kind == Kind::kModuleBackward;
  const auto name = [](const Run& run, const Producer& producer) {
    return producer.entry == kNowhere ? std::string("nothing recorded")
                                      : VisibleText(run.entries[producer.entry].name);
  };
  FindingKind kind = FindingKind::kState;
  std::string what;
  switch (e.how) {
    case Entered::kFine:
    case Entered::kInherited:
      return;
    case Entered::kOtherData:
      report_.verdict = Verdict::kNotJudged;
      report_.reason = fmt::format(
          "different input data: {} of {} has another number of elements than in the golden run",
          t.name, VisibleText(entry.name));
      stopped_ = true;
      return;
    case Entered::kStructure:
      if (!told_groups_.contains(e.group)) found.push_back(StructureFinding(e.group, 6));
      return;
    case Entered::kArgument:
      if (!gradient) found.push_back(ArgumentFinding(p, t, e));
      return;
    case Entered::kState:
      kind = FindingKind::kState;
      what = StateText(t, gradient);
      break;
    case Entered::kGlue:
      kind = FindingKind::kGlue;
      what = fmt::format(
          "which code between recorded calls changed or made (target: from {}; golden run: from "
          "{})",
          name(case_.target, e.target), name(case_.golden, e.golden));
      break;
    case Entered::kWired:
      kind = FindingKind::kWired;
      what = fmt::format("which comes from {}, in the golden run from {}",
                         name(case_.target, e.target), name(case_.golden, e.golden));
      break;
  }
  Finding f = Make(kind, p, t.name, 4);
  f.numbers = {{"deviation", e.deviation}, {"limit", Noise()}};
  f.sentence = fmt::format("{}{} received {}, {}; it deviates by {:.3g} of its size.",
                           VisibleText(entry.name), Where(f), t.name, what, e.deviation);
  const bool parameter =
      kind == FindingKind::kState && t.requires_grad == 1 && t.has_key && !t.derived && !gradient;
  f.reason_key = parameter ? ParameterKey(t) : t.name;
  found.push_back(std::move(f));
}

}  // namespace msprobe::culprit
