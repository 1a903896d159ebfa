// Rules 7, 8 and 9 on one dump: an error that a call makes itself needs no second run to be seen.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "culprit/judge.h"

namespace msprobe::culprit {

void CountReplays(const ReplayScores& scores, Report& report) {
  for (const auto& [name, entry] : scores.entries) {
    if (entry.reason.empty()) {
      ++report.replayed;
    } else {
      ++report.not_replayed[entry.reason];
    }
  }
}

void AddModel(const ScoreModel& model, Report& report) {
  report.q = model.q;
  if (model.learned == 0) return;
  report.calibrated = false;
  report.calibration = fmt::format("on your device from {} entries", model.learned);
}

double Discoveries(const ReplayScores& scores, const ScoreModel& model, Report& report) {
  std::vector<double> p;
  for (const auto& [name, entry] : scores.entries) {
    if (entry.reason.empty()) p.push_back(PValue(model, entry.Worst()));
  }
  const double limit = DiscoveryLimit(model, p, p.size());
  report.discoveries = static_cast<uint64_t>(
      std::count_if(p.begin(), p.end(), [&](double v) { return v <= limit; }));
  return limit;
}

CollectivesOfRank CollectivesIn(const Run& run, const Input& input) {
  const bool any = std::any_of(run.entries.begin(), run.entries.end(), [](const Entry& e) {
    return e.kind == Kind::kApiForward && e.name.starts_with("Distributed.");
  });
  return any && input.collectives ? input.collectives() : CollectivesOfRank();
}

namespace {

class OneDump {
 public:
  OneDump(const Run& run, const Input& input, const Options& options, Report& report)
      : run_(run),
        collectives_(CollectivesIn(run, input).target),
        options_(options),
        report_(report) {}

  void Walk(const ReplayScores& scores) {
    const double discovery = Discoveries(scores, options_.model, report_);
    for (uint32_t i = 0; i < run_.entries.size(); ++i) {
      const Entry& e = run_.entries[i];
      if (e.kind == Kind::kParameterGrad) {
        Parameters(e, scores, discovery);
      } else if (e.kind == Kind::kApiForward && e.name.starts_with("Distributed.")) {
        Collective(e);
      } else if (const auto it = scores.entries.find(e.name); it != scores.entries.end()) {
        if (it->second.reason.empty()) ++report_.judged;
        Call(e, it->second, discovery);
      }
      place_ = i + 1;
    }
    report_.verdict = report_.findings.empty() ? Verdict::kNone : Verdict::kFound;
  }

 private:
  bool Over(double score, double discovery) const {
    return score > options_.model.limit && PValue(options_.model, score) <= discovery;
  }

  void Call(const Entry& e, const EntryScore& score, double discovery) {
    const LeafScore* worst = score.WorstLeaf();
    if (worst == nullptr || !Over(worst->score, discovery)) return;
    const std::string code = CodeAt(e);
    Finding f = IntroducedFinding(*worst, CallText(e, code), -1, options_.model);
    f.kind = FindingKind::kIntroduced;
    f.leaf = worst->leaf;
    f.rule = 7;
    Take(e, code, std::move(f));
  }

  void Collective(const Entry& e) {
    const CollectiveScore* score = nullptr;
    if (collectives_ != nullptr) {
      const auto it = collectives_->find(e.name);
      if (it != collectives_->end()) score = &it->second;
    }
    if (score == nullptr || !score->judged()) {
      ++report_.not_replayed[score == nullptr ? "each rank was searched by itself" : score->reason];
      return;
    }
    ++report_.judged;
    ++report_.collectives;
    if (!score->over()) return;
    Finding f;
    f.kind = FindingKind::kIntroduced;
    f.rule = 9;
    const std::string code = CodeAt(e);
    TellCollective(*score, CallText(e, code), f);
    Take(e, code, std::move(f));
  }

  // Rule 8: neither the uses inside the module nor all uses of the tensor make the gradient.
  void Parameters(const Entry& e, const ReplayScores& scores, double discovery) {
    for (uint32_t i = e.first; i < e.first + e.count; ++i) {
      const Leaf& leaf = run_.leaves[i];
      double least = kUnknown;
      for (const char* which : {"module", "shared"}) {
        const auto it = scores.entries.find(e.name + ":" + leaf.name + ":" + which);
        if (it == scores.entries.end() || !it->second.reason.empty()) continue;
        const double score = it->second.Worst();
        least = std::isnan(least) ? score : std::min(least, score);
      }
      if (std::isnan(least)) continue;
      ++report_.judged;
      if (!Over(least, discovery)) continue;
      Finding f;
      f.kind = FindingKind::kAccumulate;
      f.leaf = leaf.name;
      f.rule = 8;
      f.numbers = {
          {"score", least}, {"p", PValue(options_.model, least)}, {"limit", options_.model.limit}};
      f.sentence = fmt::format(
          "The gradient of {} in {} is not the sum of the gradients of its uses: {:.3g} times what "
          "rounding explains.",
          leaf.name, VisibleText(e.name), least);
      Take(e, "", std::move(f));
    }
  }

  std::string CodeAt(const Entry& e) const {
    auto it = run_.code.find(e.name);
    if (it == run_.code.end()) it = run_.code.find(std::string(e.base) + ".forward");
    return it == run_.code.end() ? std::string() : it->second;
  }

  static std::string CallText(const Entry& e, const std::string& code) {
    return VisibleText(e.name) + (code.empty() ? "" : " (" + code + ")");
  }

  // The same API wrong again is one line with a count.
  void Take(const Entry& e, const std::string& code, Finding f) {
    f.entry = e.name;
    f.code = code;
    f.place = place_;
    const std::string line = fmt::format("{}|{}", static_cast<int>(f.kind), e.api);
    const auto [it, fresh] = lines_.emplace(line, report_.findings.size());
    if (fresh) {
      report_.findings.push_back(std::move(f));
    } else {
      ++report_.findings[it->second].count;
    }
  }

  const Run& run_;
  const CollectiveScores* collectives_;
  const Options& options_;
  Report& report_;
  uint64_t place_ = 0;
  std::unordered_map<std::string, size_t> lines_;
};

}  // namespace

Result<Report> FindInOneDump(const Input& input, const Options& options) {
  Report report;
  report.one_dump = true;
  AddModel(options.model, report);
  MSPROBE_ASSIGN(const std::unique_ptr<Run> run, ReadRun(input.target_json));
  report.mode = run->has_files ? Mode::kTensor : Mode::kStatistics;
  report.evidence = run->has_files;
  FillKeys(*run);
  ReplayScores scores;
  const ReplayJobs jobs = JobsFor(*run, options.model.limit, [](uint32_t) { return true; });
  std::string why;
  if (!run->has_files) {
    why = "the dump holds no tensors, and one dump alone is judged from these";
  } else if (!options.replay) {
    why = "calls are replayed by Python, and this executable is without it";
  } else if (!jobs.calls.empty() || !jobs.parameters.empty()) {
    Result<ReplayScores> found = Replayed(options.replay, jobs);
    if (found.ok()) {
      scores = std::move(found).value();
    } else {
      why = found.error().message;
    }
  }
  CountReplays(scores, report);
  OneDump(*run, input, options, report).Walk(scores);
  if (!why.empty() && report.findings.empty()) {
    report.verdict = Verdict::kNotJudged;
    report.reason = why;
  } else if (!why.empty()) {
    report.notes.push_back("collectives only: " + why);
  }
  return report;
}

Result<std::vector<double>> ScoresOf(const std::string& dump_json, const Options& options) {
  MSPROBE_ASSIGN(const std::unique_ptr<Run> run, ReadRun(dump_json));
  if (!options.replay) {
    return Error(ErrorCode::kUnsupported,
                 "calls are replayed by Python, and this executable is without it");
  }
  ReplayJobs jobs = JobsFor(*run, options.model.limit, [](uint32_t) { return true; });
  jobs.parameters.clear();
  jobs.limit = 2;  // probes from a score of 1 on: the tail above 1 is what is learned
  std::vector<double> out;
  if (!run->has_files || jobs.calls.empty()) return out;
  MSPROBE_ASSIGN(const ReplayScores scores, Replayed(options.replay, jobs));
  for (const Entry& e : run->entries) {
    const auto it = scores.entries.find(e.name);
    if (it == scores.entries.end() || !it->second.reason.empty()) continue;
    out.push_back(it->second.Worst());
  }
  return out;
}

}  // namespace msprobe::culprit
