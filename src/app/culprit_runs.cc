#include "app/culprit_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "app/compare_inputs.h"
#include "app/compare_summary.h"
#include "app/culprit_app.h"
#include "app/culprit_ranks.h"
#include "app/output_folder.h"
#include "base/file.h"
#include "base/text.h"
#include "base/time.h"

namespace msprobe::app {
namespace {

bool Stopped(const CancelToken* cancel) { return cancel != nullptr && cancel->cancelled(); }

Error Interrupted() { return Error(ErrorCode::kCancelled, "interrupted"); }

Result<std::vector<RankJob>> JobsOf(const CompareOptions& options, const std::string& golden,
                                    CompareRun* run, LogSink& log) {
  MSPROBE_ASSIGN(ComparePlan plan,
                 PlanCompare(options.target, golden, {options.rank_ids, options.step_ids}, log));
  std::erase_if(plan.jobs,
                [](const RankJob& j) { return BaseName(j.target_json) == "debug.json"; });
  if (plan.jobs.empty()) {
    return Error(ErrorCode::kNothingToDo, "holds no dump.json").At(options.target);
  }
  if (run != nullptr) run->missing = std::move(plan.missing);
  return std::move(plan.jobs);
}

culprit::Options SearchOf(const CompareOptions& options) {
  culprit::Options out;
  out.model = options.score_model;
  out.replay = options.replay;
  return out;
}

// Entries, not rows: a finding that stands for several counts as these.
void Count(RankOutcome& out) {
  const culprit::Report& report = *out.culprit;
  uint64_t wrong = 0;
  for (const culprit::Finding& f : report.findings) wrong += f.count;
  uint64_t rest = 0;
  for (const auto& [reason, count] : report.not_replayed) rest += count;
  out.counts.error = wrong;
  out.counts.pass = report.judged - std::min(report.judged, wrong);
  out.counts.unmatched = rest;
  out.counts.total = out.counts.pass + wrong + rest;
  if (report.mode == culprit::Mode::kTensor) out.mode = compare::Mode::kTensor;
  if (report.findings.empty()) return;
  const culprit::Finding& f = report.findings.front();
  out.first_bad = compare::FirstBad{};
  out.first_bad->entry = f.entry;
  out.first_bad->row = f.entry + "." + f.leaf;
  out.first_bad->reason = f.sentence;
  out.first_bad->row_index = f.place;
}

void SumUp(CompareRun& run) {
  for (const RankOutcome& r : run.ranks) {
    run.partial |= r.error.has_value();
    run.counts.pass += r.counts.pass;
    run.counts.error += r.counts.error;
    run.counts.unmatched += r.counts.unmatched;
    run.counts.total += r.counts.total;
  }
  run.first_bad_rank = FirstFound(run.ranks);
}

Status WriteSummaryFile(const CompareOptions& options, CompareRun& run) {
  constexpr std::string_view kName = "compare_summary_{ts}.json";
  const std::string stamp = LocalTimestamp(FreeTimestamp(options.output_dir, {kName}, run.started));
  run.summary_path = JoinPath(options.output_dir, fmt::format("compare_summary_{}.json", stamp));
  MSPROBE_ASSIGN(AtomicFile file, AtomicFile::Create(run.summary_path));
  MSPROBE_TRY(file.Write(SummaryJson(options, run)));
  return file.Commit();
}

}  // namespace

Result<CompareRun> JudgeOneDump(const CompareOptions& options, LogSink& log, ProgressSink& progress,
                                const CancelToken* cancel) {
  CompareRun run;
  run.started = UnixSeconds();
  const double begin = MonotonicSeconds();
  MSPROBE_ASSIGN(std::vector<RankJob> jobs, JobsOf(options, options.target, &run, log));
  MSPROBE_ASSIGN(const OutputFolder folder, OutputFolder::Make(options.output_dir));
  run.ranks.resize(jobs.size());
  for (size_t i = 0; i < jobs.size(); ++i) {
    run.ranks[i].job = std::move(jobs[i]);
    run.ranks[i].job.golden_json.clear();
    run.ranks[i].job.golden_rank.clear();
  }
  StepCollectives across(run.ranks, true);
  for (size_t i = 0; i < run.ranks.size(); ++i) {
    if (Stopped(cancel)) return Interrupted();
    RankOutcome& out = run.ranks[i];
    progress.Update("dumps", i, run.ranks.size());
    culprit::Input input;
    input.target_json = out.job.target_json;
    input.collectives = across.Of(out);
    Result<culprit::Report> report = culprit::FindInOneDump(input, SearchOf(options));
    if (Stopped(cancel)) return Interrupted();
    if (!report.ok()) {
      if (run.ranks.size() == 1) return report.error();
      log.Error(RankLabel(out.job) + ": not judged: " + report.error().ToString());
      out.error = report.error();
      continue;
    }
    out.culprit = std::make_shared<const culprit::Report>(std::move(report).value());
    Count(out);
  }
  SumUp(run);
  run.seconds = MonotonicSeconds() - begin;
  MSPROBE_TRY(WriteSummaryFile(options, run));
  return run;
}

std::string OneDumpAnswer(const CompareRun& run) {
  std::vector<std::string> lines = CulpritLines(run);
  constexpr size_t kMostLines = 20;
  size_t shown = 0;
  for (const RankOutcome& r : run.ranks) {
    if (!r.culprit) continue;
    for (const culprit::Finding& f : r.culprit->findings) {
      if (r.culprit.get() == CulpritOf(run) && &f == &r.culprit->findings.front()) continue;
      if (++shown > kMostLines) continue;
      const std::string label = RankLabel(r.job);
      lines.push_back(fmt::format("  also{}: {}{}", label.empty() ? "" : " (" + label + ")",
                                  VisibleText(f.sentence),
                                  f.count > 1 ? fmt::format(" ({} calls)", f.count) : ""));
    }
  }
  if (shown > kMostLines)
    lines.push_back(fmt::format("  and {} more, see the summary", shown - kMostLines));
  lines.push_back("Summary: " + VisibleText(run.summary_path));
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

std::string OneDumpClosingLine(const CompareRun& run) {
  const compare::Counts& c = run.counts;
  std::string out = fmt::format(
      "pass {}, error {}, unmatched {}, total {} entries of one dump, first_bad {}", c.pass,
      c.error, c.unmatched, c.total,
      run.first_bad_rank ? VisibleText(run.ranks[*run.first_bad_rank].first_bad->entry) : "none");
  return out + ", path " + VisibleText(run.summary_path);
}

Result<FloorRun> LearnFloor(const CompareOptions& options, LogSink& log, ProgressSink& progress,
                            const CancelToken* cancel) {
  FloorRun run;
  MSPROBE_ASSIGN(const std::vector<RankJob> jobs, JobsOf(options, options.golden, nullptr, log));
  const bool file = options.output_dir.ends_with(".json");
  run.path = file ? options.output_dir : JoinPath(options.output_dir, "floor.json");
  MSPROBE_ASSIGN(const OutputFolder folder, OutputFolder::Make(DirName(run.path)));
  std::vector<double> scores;
  uint64_t done = 0;
  for (const RankJob& job : jobs) {
    for (const std::string& dump : {job.target_json, job.golden_json}) {
      progress.Update("runs", done++, 2 * jobs.size());
      MSPROBE_ASSIGN(const std::vector<double> more, culprit::ScoresOf(dump, SearchOf(options)));
      if (Stopped(cancel)) return Interrupted();
      scores.insert(scores.end(), more.begin(), more.end());
    }
  }
  for (const double s : scores) {
    if (std::isfinite(s)) run.largest = std::max(run.largest, s);
    if (!std::isfinite(s)) ++run.infinite;
  }
  // From the calibrated constants, whatever was learned before.
  culprit::ScoreModel before;
  before.q = options.score_model.q;
  MSPROBE_ASSIGN(run.model, culprit::LearnFloor(std::move(scores), before));
  run.entries = run.model.learned;
  culprit::Options search = SearchOf(options);
  search.model = run.model;
  for (const RankJob& job : jobs) {
    if (Stopped(cancel)) return Interrupted();
    const Result<culprit::Report> report = culprit::FindCulprit(
        {.target_json = job.target_json, .golden_json = job.golden_json}, search);
    if (!report.ok() || report->findings.empty()) continue;
    const std::string label = RankLabel(job);
    run.found.push_back((label.empty() ? "" : label + ": ") + report->findings.front().sentence);
  }
  MSPROBE_ASSIGN(AtomicFile out, AtomicFile::Create(run.path));
  MSPROBE_TRY(out.Write(culprit::FloorJson(run.model, {options.target, options.golden})));
  MSPROBE_TRY(out.Commit());
  return run;
}

std::string FloorAnswer(const FloorRun& run) {
  std::string out = fmt::format(
      "Learned from {} replayed entries: scores up to {:.3g} are rounding (largest seen {:.3g}); "
      "p(s) = {:.3g} s^-{:.3g} above 1.\n",
      run.entries, run.model.limit, run.largest, run.model.tail, run.model.exponent);
  if (run.infinite > 0) {
    out += fmt::format(
        "  {} entries were left out: NaN or infinity stand where the replay has numbers, or the "
        "other way round\n",
        run.infinite);
  }
  for (const std::string& f : run.found)
    out += "  the two runs still differ: " + VisibleText(f) + "\n";
  out += "Written: " + VisibleText(run.path) + "; use it with --floor\n";
  return out;
}

}  // namespace msprobe::app
