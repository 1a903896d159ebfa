#include "culprit/culprit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "culprit/judge.h"

namespace msprobe::culprit {
namespace {

// Modules with recorded entries inside, on either side, by base name; `branches`: with modules.
std::unordered_set<std::string_view> Modules(std::initializer_list<const Run*> runs,
                                             bool branches) {
  std::unordered_set<std::string_view> out;
  for (const Run* run : runs) {
    for (const Entry& e : run->entries) {
      if (e.parent.empty() || (branches && e.kind != Kind::kModuleForward)) continue;
      out.insert(PartsOf(e.parent).base);
    }
  }
  return out;
}

std::unordered_map<std::string, double> GradientScale(const Run& run) {
  std::unordered_map<std::string, double> out;
  for (const Entry& e : run.entries) {
    if (e.kind != Kind::kApiBackward && e.kind != Kind::kModuleBackward &&
        e.kind != Kind::kParameterGrad)
      continue;
    for (uint32_t i = e.first; i < e.first + e.count; ++i) {
      const Leaf& leaf = run.leaves[i];
      if (leaf.kind != LeafKind::kTensor || !std::isfinite(leaf.norm)) continue;
      double& scale = out[ShapeText(leaf.shape)];
      scale = std::max(scale, leaf.norm);
    }
  }
  return out;
}

Mode ModeOf(const Run& target, const Run& golden) {
  if (target.has_files && golden.has_files) return Mode::kTensor;
  return target.has_sketches && golden.has_sketches ? Mode::kSketch : Mode::kStatistics;
}

class Replays {
 public:
  Replays(const Case& c, const Options& options, Report& report)
      : case_(c), options_(options), report_(report) {}

  Scores Run() {
    Scores out;
    if (case_.mode != Mode::kTensor) return out;
    if (!options_.replay) {
      report_.notes.emplace_back(
          "not replayed: this executable is without Python; judged by growth");
      return out;
    }
    const ReplayJobs jobs = FirstJobs();
    if (jobs.calls.empty() && jobs.parameters.empty()) return out;
    Result<ReplayScores> target = Replayed(options_.replay, jobs);
    if (!target.ok()) {
      report_.notes.push_back("not replayed: " + target.error().message + "; judged by growth");
      return out;
    }
    out.target = std::move(target).value();
    out.replayed = true;
    CountReplays(out.target, report_);
    const ReplayJobs second = SecondJobs(out.target);
    if (second.calls.empty() && second.parameters.empty()) return out;
    Result<ReplayScores> golden = Replayed(options_.replay, second);
    if (golden.ok()) out.golden = std::move(golden).value();
    AddEffects(out);
    return out;
  }

  void Discover(Scores& scores) const {
    scores.discovery_limit = Discoveries(scores.target, options_.model, report_);
  }

 private:
  // Stage one: what differs between the runs.
  ReplayJobs FirstJobs() const {
    return JobsFor(case_.target, options_.model.limit, [&](uint32_t t) {
      const uint32_t g = case_.alignment.of_target[t];
      return g != kNowhere && !Unchanged(t, g);
    });
  }

  // The same results from whatever inputs: nothing to explain. A gradient's inputs are those of
  // its call as well.
  bool Unchanged(uint32_t t, uint32_t g) const {
    const Entry& e = case_.target.entries[t];
    for (uint32_t i = e.first; i < e.first + e.count; ++i) {
      const Leaf& a = case_.target.leaves[i];
      if (a.kind != LeafKind::kTensor ||
          (e.kind == Kind::kParameterGrad && a.role != Role::kOutput))
        continue;
      const Leaf* b = case_.golden.FindLeaf(g, a.role, a.name);
      if (b == nullptr || !a.has_key || !b->has_key || a.key != b->key) return false;
    }
    return true;
  }

  // Stage two: the golden side of what the target shows, and both sides for the figures.
  ReplayJobs SecondJobs(const ReplayScores& target) const {
    ReplayJobs jobs;
    jobs.dump = case_.golden.path;
    jobs.other = case_.target.path;
    jobs.limit = options_.model.limit;
    std::unordered_map<std::string, size_t> known;
    for (uint32_t t = 0; t < case_.target.entries.size(); ++t) {
      const Entry& e = case_.target.entries[t];
      const uint32_t g = case_.alignment.of_target[t];
      if (g == kNowhere) continue;
      if (e.kind == Kind::kParameterGrad) {
        AddParameters(target, e, g, jobs);
        continue;
      }
      const auto it = target.entries.find(e.name);
      const bool asked = it != target.entries.end() && it->second.reason.empty();
      if (!asked || (it->second.Worst() <= options_.model.limit && !options_.loss_impact)) continue;
      const std::string base(case_.golden.entries[g].base);
      const auto [at, fresh] = known.emplace(base, jobs.calls.size());
      if (fresh) jobs.calls.push_back({base, std::string(e.base), false, false});
      (e.kind == Kind::kApiForward ? jobs.calls[at->second].forward
                                   : jobs.calls[at->second].backward) = true;
    }
    return jobs;
  }

  void AddParameters(const ReplayScores& target, const Entry& e, uint32_t g,
                     ReplayJobs& jobs) const {
    bool over = false;
    for (const auto& [key, score] : target.entries) {
      over |= key.starts_with(e.name + ":") && score.Worst() > options_.model.limit;
    }
    if (!over) return;
    for (ParameterJob& job : ParameterJobs(case_.golden, g))
      jobs.parameters.push_back(std::move(job));
  }

  // The second stage knows both sides: its figures belong to the target's leaves.
  void AddEffects(Scores& scores) const {
    for (const auto& [name, entry] : scores.golden.entries) {
      const uint32_t g = case_.golden.Find(name);
      if (g == kNowhere || case_.alignment.of_golden[g] == kNowhere) continue;
      const auto it =
          scores.target.entries.find(case_.target.entries[case_.alignment.of_golden[g]].name);
      if (it == scores.target.entries.end()) continue;
      for (LeafScore& leaf : it->second.leaves) {
        for (const LeafScore& other : entry.leaves) {
          if (other.leaf != leaf.leaf) continue;
          leaf.inherited = other.inherited;
          leaf.amplification = other.amplification;
          leaf.impact = other.impact;
        }
      }
    }
  }

  const Case& case_;
  const Options& options_;
  Report& report_;
};

// The loss: the last forward call with one floating element whose gradient was recorded.
void FindLoss(const Case& c, const Scores& scores, Report& report) {
  for (uint32_t t = static_cast<uint32_t>(c.target.entries.size()); t-- > 0;) {
    const Entry& e = c.target.entries[t];
    const uint32_t g = c.alignment.of_target[t];
    if (e.kind != Kind::kApiForward || g == kNowhere) continue;
    const Leaf* a = c.target.FindLeaf(t, Role::kOutput, "output.0");
    const Leaf* b = c.golden.FindLeaf(g, Role::kOutput, "output.0");
    if (a == nullptr || b == nullptr || a->elements != 1 || !a->floating || a->requires_grad != 1)
      continue;
    if (!std::isfinite(a->max) || !std::isfinite(b->max)) continue;
    report.loss.known = true;
    report.loss.difference = a->max - b->max;
    break;
  }
  for (const auto& [name, entry] : scores.target.entries) {
    for (const LeafScore& leaf : entry.leaves) {
      if (std::isfinite(leaf.impact)) report.loss.sum += leaf.impact;
    }
  }
}

}  // namespace

Result<Report> FindCulprit(const Input& input, const Options& options) {
  Report report;
  AddModel(options.model, report);
  MSPROBE_ASSIGN(const std::unique_ptr<Run> target, ReadRun(input.target_json));
  MSPROBE_ASSIGN(const std::unique_ptr<Run> golden, ReadRun(input.golden_json));
  const KeyKind keys = FillKeys(*target, *golden);
  report.mode = ModeOf(*target, *golden);
  const auto tells = [](const Run& r) {
    return r.has_files || r.has_sketches || r.has_hash64 || !r.origins.empty();
  };
  report.evidence = tells(*target) && tells(*golden);
  if (options.needs_evidence && !report.evidence) return report;
  if (keys == KeyKind::kNone && report.mode == Mode::kStatistics && !target->has_statistics) {
    report.verdict = Verdict::kNotJudged;
    report.reason = "the dumps hold neither tensors, sketches, hashes nor statistics";
    return report;
  }
  Distances distances(*target, *golden);
  const Alignment alignment = Align(*target, *golden, distances);
  const bool any = std::any_of(alignment.of_target.begin(), alignment.of_target.end(),
                               [](uint32_t g) { return g != kNowhere; });
  if (!any) {
    report.verdict = Verdict::kNotJudged;
    report.reason = "no call of one dump is a call of the other";
    return report;
  }
  const Provenance target_sources(*target);
  const Provenance golden_sources(*golden);
  Case c{*target,
         *golden,
         alignment,
         target_sources,
         golden_sources,
         distances,
         keys,
         report.mode,
         target->sixteen || golden->sixteen,
         Modules({target.get(), golden.get()}, false),
         Modules({target.get(), golden.get()}, true),
         GradientScale(*golden),
         CollectivesIn(*target, input)};
  Replays replays(c, options, report);
  Scores scores = replays.Run();
  replays.Discover(scores);
  Judge(c, options, input, report).Walk(scores);
  if (options.loss_impact && scores.replayed) FindLoss(c, scores, report);
  return report;
}

}  // namespace msprobe::culprit
