// Rules 7, 8, 10, 11, 13: what a call made of its inputs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "culprit/judge.h"
#include "dump/overwritten.h"

namespace msprobe::culprit {
namespace {

constexpr double kTooMuch = 0.3;  // growth is not judged when inputs deviate by more, together

double LargestOf(const Leaf& leaf) {
  const double high = std::isfinite(leaf.max) ? std::abs(leaf.max) : 0;
  const double low = std::isfinite(leaf.min) ? std::abs(leaf.min) : 0;
  return std::max(high, low);
}

}  // namespace

bool Judge::ReplayedEntry(const Entry& e) const {
  const auto it = scores_->target.entries.find(e.name);
  return it != scores_->target.entries.end() && it->second.reason.empty();
}

void Judge::Introduced(Pair p, std::vector<Finding>& found) {
  const Entry& e = case_.target.entries[p.t];
  const auto it = scores_->target.entries.find(e.name);
  if (it == scores_->target.entries.end()) return;
  const LeafScore* worst = it->second.WorstLeaf();
  if (worst == nullptr || worst->score <= options_.model.limit) return;
  const double pvalue = PValue(options_.model, worst->score);
  if (pvalue > scores_->discovery_limit) return;
  const auto golden = scores_->golden.entries.find(case_.golden.entries[p.g].name);
  double other = 0;
  if (golden != scores_->golden.entries.end()) other = golden->second.Worst();
  if (worst->score <= options_.model.contrast * other) return;
  Finding f = Make(FindingKind::kIntroduced, p, worst->leaf, 7);
  const std::string call = VisibleText(e.name) + Where(f);
  Finding told = IntroducedFinding(*worst, call, other, options_.model);
  f.numbers = std::move(told.numbers);
  f.sentence = std::move(told.sentence);
  f.reason_key = "introduced";
  found.push_back(std::move(f));
}

Finding IntroducedFinding(const LeafScore& worst, const std::string& call, double golden,
                          const ScoreModel& model) {
  Finding f;
  const bool alone = golden < 0;
  f.numbers = {{"score", worst.score}};
  if (!alone) f.numbers.emplace_back("golden_score", golden);
  f.numbers.emplace_back("p", PValue(model, worst.score));
  f.numbers.emplace_back("limit", model.limit);
  const auto add = [&](const char* name, double value) {
    if (!std::isnan(value)) f.numbers.emplace_back(name, value);
  };
  const double size = worst.norm > 0 ? worst.norm : 1;
  add("introduced", worst.introduced / size);
  add("inherited", worst.inherited / size);
  add("amplification", worst.amplification);
  add("loss_impact", worst.impact);
  f.sentence = fmt::format(
      "{} computes {} wrong from {}: {} times the error that rounding explains{}, relative error "
      "{:.3g}.",
      call, worst.leaf, alone ? "its own inputs" : "right inputs",
      std::isinf(worst.score) ? "infinitely many" : fmt::format("{:.3g}", worst.score),
      alone ? "" : fmt::format(" (golden run: {:.3g})", golden), worst.introduced / size);
  return f;
}

// Rule 9.
const CollectiveScore* Judge::CollectiveOf(const Entry& e) const {
  if (case_.collectives.target == nullptr) return nullptr;
  const auto it = case_.collectives.target->find(e.name);
  return it == case_.collectives.target->end() || !it->second.judged() ? nullptr : &it->second;
}

void TellCollective(const CollectiveScore& score, const std::string& call, Finding& f) {
  f.leaf = score.leaf;
  f.numbers = {{"deviation", score.deviation}, {"limit", score.limit}};
  f.sentence = fmt::format(
      "{} returns {} that is not what the inputs of all ranks of its group give: it deviates by "
      "{:.3g} of its size, rounding explains {:.3g}.",
      call, score.leaf, score.deviation, score.limit);
  f.reason_key = "introduced";
}

void Judge::Collective(Pair p, std::vector<Finding>& found) {
  const Entry& e = case_.target.entries[p.t];
  if (e.kind != Kind::kApiForward || !e.name.starts_with("Distributed.")) return;
  const CollectiveScore* score = CollectiveOf(e);
  if (score == nullptr) {
    std::string reason = "each rank was searched by itself";
    if (case_.collectives.target != nullptr) {
      const auto it = case_.collectives.target->find(e.name);
      if (it != case_.collectives.target->end()) reason = it->second.reason;
    }
    ++report_.collectives_by_growth[reason];
    return;
  }
  ++report_.collectives;
  if (!score->over()) return;
  // As with replays: what the golden run shows as well is no fault of the target.
  if (case_.collectives.golden != nullptr) {
    const auto it = case_.collectives.golden->find(case_.golden.entries[p.g].name);
    if (it != case_.collectives.golden->end() && it->second.over() &&
        score->deviation <= options_.model.contrast * it->second.deviation) {
      return;
    }
  }
  Finding f = Make(FindingKind::kIntroduced, p, score->leaf, 9);
  TellCollective(*score, VisibleText(e.name) + Where(f), f);
  found.push_back(std::move(f));
}

void Judge::Add(Incoming& in, const Leaf& t, const Leaf& g) const {
  if (t.kind != LeafKind::kTensor || g.kind != LeafKind::kTensor) return;
  if (t.shape != g.shape) {
    in.unknown = true;
    return;
  }
  const Distance& d = case_.distances.Between(t, g);
  if (!d.known()) {
    in.unknown = true;
    return;
  }
  in.all_equal = in.all_equal && d.equal;
  in.classes = in.classes || d.classes;
  in.sum += d.relative;
  in.absolute += d.absolute;
}

Judge::Incoming Judge::InputsOf(Pair p, const Growth& growth) const {
  constexpr double kMask = 1e30;  // no value: what it is added to it hides
  Incoming in;
  const Entry& e = case_.target.entries[p.t];
  std::vector<std::pair<double, double>> sizes;  // norm, largest element
  // `sizes_count`: the leaves are factors, or terms, of the result.
  const auto entry = [&](uint32_t t, uint32_t g, bool outputs, bool sizes_count) {
    const Entry& te = case_.target.entries[t];
    for (uint32_t i = te.first; i < te.first + te.count; ++i) {
      const Leaf& a = case_.target.leaves[i];
      const bool wanted = a.role == Role::kInput || a.role == Role::kParameter ||
                          (outputs && a.role == Role::kOutput);
      if (!wanted || dump::IsOverwritten(te.last, a.name)) continue;
      const Leaf* b = case_.golden.FindLeaf(g, a.role, a.name);
      if (b == nullptr) continue;
      Add(in, a, *b);
      if (sizes_count && a.kind == LeafKind::kTensor && a.floating && a.role != Role::kOutput &&
          LargestOf(*b) < kMask) {
        const double norm = std::isfinite(b->norm) ? b->norm : case_.distances.Between(a, *b).norm;
        sizes.emplace_back(norm, LargestOf(*b));
      }
    }
  };
  entry(p.t, p.g, false, true);
  if (e.kind == Kind::kApiBackward) {
    const uint32_t t = case_.target.Find(std::string(e.base) + ".forward");
    const uint32_t g = case_.golden.Find(std::string(case_.golden.entries[p.g].base) + ".forward");
    if (t == kNowhere || g == kNowhere) {
      in.unknown = true;
      return in;
    }
    entry(t, g, true, !growth.bounded);
  }
  // The largest operand by its norm, the others by their largest elements.
  const auto most = std::max_element(sizes.begin(), sizes.end());
  for (auto it = sizes.begin(); it != sizes.end(); ++it) {
    if (it == most) {
      in.largest = it->first;
    } else {
      in.others *= it->second;
    }
  }
  return in;
}

// Rule 13, for entries that were not replayed.
void Judge::Grown(Pair p, std::vector<Finding>& found) {
  const Entry& e = case_.target.entries[p.t];
  // Dropout is replayed given what it kept: whether that is the same, only growth tells.
  const bool drops = e.last.find("dropout") != std::string_view::npos;
  if (ReplayedEntry(e) && !(drops && e.kind == Kind::kApiForward)) return;
  if (CollectiveOf(e) != nullptr) return;
  const bool backward = e.kind == Kind::kApiBackward || e.kind == Kind::kModuleBackward;
  Growth growth = GrowthOf(e.last, case_.sixteen);
  const Incoming in = InputsOf(p, growth);
  if (in.unknown || in.sum > kTooMuch) return;
  if (e.kind == Kind::kModuleForward) growth.cancels = true;
  for (uint32_t i = e.first; i < e.first + e.count; ++i) {
    const Leaf& t = case_.target.leaves[i];
    if ((t.role != Role::kOutput && t.role != Role::kMutated) || t.kind != LeafKind::kTensor)
      continue;
    const Leaf* g = case_.golden.FindLeaf(p.g, t.role, t.name);
    if (g == nullptr || g->kind != LeafKind::kTensor || g->shape != t.shape) continue;
    const Distance& d = case_.distances.Between(t, *g);
    if (!d.known() || d.equal) continue;
    // Masks and large scores make the relative distance of what is raised to a power small.
    const double by_power = growth.powers && !backward ? 2 * in.absolute : 0;
    double limit = (std::max(growth.gain * in.sum, by_power) + growth.own) * d.norm;
    if (growth.kinked && backward) limit += std::sqrt(in.sum) * d.norm;
    if (growth.cancels || backward) {
      limit += (growth.own + (backward ? in.sum : 0)) * in.largest *
               std::max(in.others, backward ? 1e-3 : 0.0);
    }
    // Zero in exact arithmetic, most likely: judged by the size of its siblings.
    constexpr double kNothing = 1e-4;
    const double scale = backward ? ScaleOf(p, *g, 0) : 0;
    if (d.norm <= kNothing * scale) limit = std::max(limit, Noise() * scale);
    if (d.source == Source::kStatistics) limit *= 2;
    if (t.role == Role::kMutated && t.elements > 1) limit = std::max(limit, Noise() * d.norm);
    const bool exact = !t.floating;
    const bool alarm = exact ? in.all_equal : d.classes ? !in.classes : d.absolute > limit;
    if (!alarm) continue;
    Finding f = Make(FindingKind::kOutput, p, t.name, 13);
    f.numbers = {{"deviation", d.relative},
                 {"inputs", in.sum},
                 {"limit", d.norm > 0 ? limit / d.norm : limit}};
    f.sentence = fmt::format(
        "{} of {}{} deviates by {:.3g} of its size, its inputs by {:.3g} together, which explains "
        "{:.3g}.",
        t.name, VisibleText(e.name), Where(f), d.relative, in.sum,
        d.norm > 0 ? limit / d.norm : limit);
    f.reason_key = "output";
    found.push_back(std::move(f));
    return;
  }
}

// Rule 8 without a replay: a parameter's gradient that deviates far more than anything before it.
void Judge::GrownGradient(Pair p, const Leaf& t) {
  constexpr double kFar = 50;  // times nu
  const Leaf* g = case_.golden.FindLeaf(p.g, t.role, t.name);
  if (t.kind != LeafKind::kTensor || g == nullptr || g->kind != LeafKind::kTensor ||
      g->shape != t.shape) {
    return;
  }
  const Distance& d = case_.distances.Between(t, *g);
  if (!d.known() || d.equal) return;
  const double deviation = d.absolute / std::max(ScaleOf(p, *g, d.norm), 1e-300);
  const double limit = kFar * Noise();
  if (deviation <= limit) return;
  if (!report_.findings.empty() || input_.found_before) {
    Consequence(case_.target.entries[p.t].name);
    return;
  }
  Finding f = Make(FindingKind::kAccumulate, p, t.name, 8);
  f.numbers = {{"deviation", deviation}, {"limit", limit}};
  f.sentence = fmt::format(
      "The gradient of {} in {} deviates by {:.3g} of its size, and no result before it by more "
      "than {:.3g}.",
      t.name, VisibleText(case_.target.entries[p.t].name), deviation, front_);
  f.reason_key = "accumulate";
  // A shared parameter's gradient holds what comes later, too: told when nothing else is found.
  if (deferred_.empty()) deferred_.push_back(std::move(f));
}

// Rule 8. Entries of the answer: "<entry>:<leaf>:module" and "…:shared".
void Judge::ParameterGrads(Pair p, std::vector<Finding>& found) {
  const Entry& e = case_.target.entries[p.t];
  const Entry& ge = case_.golden.entries[p.g];
  for (uint32_t i = e.first; i < e.first + e.count; ++i) {
    const Leaf& t = case_.target.leaves[i];
    const auto score = [&](const ReplayScores& scores, const Entry& entry, const char* which) {
      const auto it = scores.entries.find(entry.name + ":" + t.name + ":" + which);
      return it == scores.entries.end() || !it->second.reason.empty() ? kUnknown
                                                                      : it->second.Worst();
    };
    const double module = score(scores_->target, e, "module");
    const double shared = score(scores_->target, e, "shared");
    if (std::isnan(module) && std::isnan(shared)) {
      GrownGradient(p, t);
      continue;
    }
    const double limit = options_.model.limit;
    const auto fails = [&](double s) { return std::isnan(s) || s > limit; };
    const double golden_module = score(scores_->golden, ge, "module");
    const double golden_shared = score(scores_->golden, ge, "shared");
    if (std::isnan(golden_module) && std::isnan(golden_shared)) continue;
    const bool both_fail =
        fails(module) && fails(shared) && !(fails(golden_module) && fails(golden_shared));
    const bool other =
        !fails(module) != !fails(golden_module) && !fails(shared) != !fails(golden_shared);
    if (!both_fail && !other) continue;
    const auto least = [](double a, double b) {
      return std::isnan(a) ? b : std::isnan(b) ? a : std::min(a, b);
    };
    const double worst = least(module, shared);
    const double pvalue = PValue(options_.model, worst);
    if (both_fail && (pvalue > scores_->discovery_limit ||
                      worst <= options_.model.contrast * least(golden_module, golden_shared))) {
      continue;
    }
    Finding f = Make(FindingKind::kAccumulate, p, t.name, 8);
    f.numbers = {{"score", worst},
                 {"golden_score", least(golden_module, golden_shared)},
                 {"p", pvalue},
                 {"limit", limit}};
    f.sentence = fmt::format(
        "The gradient of {} in {} is not the sum of the gradients of its uses: {:.3g} times what "
        "rounding explains (golden "
        "run: {:.3g}).",
        t.name, VisibleText(e.name), worst, least(golden_module, golden_shared));
    f.reason_key = "accumulate";
    found.push_back(std::move(f));
  }
}

namespace {

// Leaves of forward calls that are this parameter, in the calls of `parent` or in all.
std::vector<ParameterJob::Use> UsesOf(const Run& run, const Leaf& parameter,
                                      std::string_view module) {
  std::vector<ParameterJob::Use> out;
  for (const Entry& e : run.entries) {
    if (e.kind != Kind::kApiForward) continue;
    if (!module.empty() && PartsOf(e.parent).api != module) continue;
    for (uint32_t i = e.first; i < e.first + e.count; ++i) {
      const Leaf& leaf = run.leaves[i];
      if (leaf.role != Role::kInput || leaf.kind != LeafKind::kTensor || leaf.requires_grad != 1)
        continue;
      if (leaf.has_key && leaf.key == parameter.key && leaf.shape == parameter.shape) {
        out.push_back({std::string(e.base), leaf.name});
      }
    }
  }
  return out;
}

}  // namespace

std::vector<ParameterJob> ParameterJobs(const Run& run, uint32_t entry) {
  std::vector<ParameterJob> out;
  const Entry& e = run.entries[entry];
  uint32_t module = kNowhere;
  for (uint32_t i = 0; i < run.entries.size() && module == kNowhere; ++i) {
    if (run.entries[i].kind == Kind::kModuleForward && run.entries[i].api == e.api) module = i;
  }
  if (module == kNowhere) return out;
  for (uint32_t i = e.first; i < e.first + e.count; ++i) {
    const Leaf& gradient = run.leaves[i];
    if (gradient.kind != LeafKind::kTensor || gradient.data_name.empty()) continue;
    const Leaf* parameter = run.FindLeaf(module, Role::kParameter, "parameters." + gradient.name);
    if (parameter == nullptr || !parameter->has_key || parameter->max == parameter->min) continue;
    ParameterJob job;
    job.entry = e.name;
    job.leaf = gradient.name;
    job.data_name = gradient.data_name;
    job.dtype = gradient.dtype;
    job.shape = gradient.shape;
    job.uses = UsesOf(run, *parameter, e.api);
    job.key = e.name + ":" + gradient.name + ":module";
    const size_t inside = job.uses.size();
    if (inside > 0) out.push_back(job);
    job.uses = UsesOf(run, *parameter, {});
    job.key = e.name + ":" + gradient.name + ":shared";
    if (job.uses.size() > inside) out.push_back(std::move(job));
  }
  return out;
}

ReplayJobs JobsFor(const Run& run, double limit,
                   const std::function<bool(uint32_t entry)>& wanted) {
  ReplayJobs jobs;
  jobs.dump = run.path;
  jobs.limit = limit;
  std::unordered_map<std::string_view, size_t> known;
  for (uint32_t i = 0; i < run.entries.size(); ++i) {
    if (!wanted(i)) continue;
    const Entry& e = run.entries[i];
    if (e.kind == Kind::kParameterGrad) {
      for (ParameterJob& job : ParameterJobs(run, i)) jobs.parameters.push_back(std::move(job));
      continue;
    }
    if (e.kind != Kind::kApiForward && e.kind != Kind::kApiBackward) continue;
    const auto [it, fresh] = known.emplace(e.base, jobs.calls.size());
    if (fresh) jobs.calls.push_back({std::string(e.base), {}, false, false});
    (e.kind == Kind::kApiForward ? jobs.calls[it->second].forward
                                 : jobs.calls[it->second].backward) = true;
  }
  return jobs;
}

}  // namespace msprobe::culprit
