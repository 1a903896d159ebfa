#include "app/compare_app.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <unordered_set>

#include "app/advisor.h"
#include "app/compare_html.h"
#include "app/compare_items.h"
#include "app/compare_mapping.h"
#include "app/compare_summary.h"
#include "app/compare_table.h"
#include "app/compare_text.h"
#include "app/culprit_app.h"
#include "app/json_rows.h"
#include "app/junit.h"
#include "app/output_folder.h"
#include "app/rank_progress.h"
#include "base/file.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "base/time.h"
#include "compare/piece_journal.h"
#include "compare/rule_texts.h"
#include "dump/reader.h"
#include "json/json.h"
#include "kernels/checksum.h"
#include "report/table.h"

namespace msprobe::app {
namespace {

using compare::Comparison;
using compare::Face;

std::string SuffixOf(const RankJob& job, const CompareOptions& options) {
  std::string out = options.suffix;
  if (!job.step.empty()) out += "_" + job.step;
  if (!job.rank.empty()) out += "_" + job.rank;
  return out;
}

struct Names {
  std::string report, partial, advice, mapping;  // with {ts}
};

Names NamesOf(const RankJob& job, const CompareOptions& options) {
  const std::string suffix = SuffixOf(job, options);
  const bool debug = BaseName(job.target_json) == "debug.json";
  const bool xlsx = options.face == Face::kOld || options.xlsx;
  Names out;
  out.report = fmt::format("{}compare_result{}_{{ts}}.{}", debug ? "debug_" : "", suffix,
                           xlsx ? "xlsx" : "csv");
  // Not a name that merge_result or a script would take for a whole report.
  out.partial = "partial_" + out.report;
  const std::string_view beside = job.beside_dump ? "debug_" : "";
  out.advice = fmt::format("{}advisor{}_{{ts}}.txt", beside, suffix);
  out.mapping = fmt::format("{}data_mapping{}_{{ts}}.yaml", beside, suffix);
  return out;
}

std::string WithStamp(std::string pattern, const std::string& stamp) {
  const size_t k = pattern.find("{ts}");
  if (k != std::string::npos) pattern.replace(k, 4, stamp);
  return pattern;
}

constexpr std::string_view kHtmlName = "compare_report_{ts}.html";

// One stamp for all files of a run: the first second at which every name is free (decisions.md 5).
std::string StampFor(const std::vector<RankJob>& jobs, const CompareOptions& options,
                     int64_t start) {
  int64_t stamp = start;
  for (;;) {
    int64_t next = FreeTimestamp(options.output_dir, {"compare_summary_{ts}.json"}, stamp);
    if (options.html) next = FreeTimestamp(options.output_dir, {kHtmlName}, next);
    for (const RankJob& job : jobs) {
      const Names names = NamesOf(job, options);
      next = FreeTimestamp(options.output_dir,
                           {names.report, names.partial, names.advice, names.mapping}, next);
    }
    if (next == stamp) return LocalTimestamp(stamp);
    stamp = next;
  }
}

std::optional<std::string> StackOf(const RankJob& job, const CompareOptions& options) {
  if (options.stack_path && job.rank.empty()) {
    if (!options.stack_mode) return std::nullopt;
    return options.stack_path;
  }
  std::string beside = JoinPath(DirName(job.target_json), "stack.json");
  if (!PathExists(beside)) return std::nullopt;
  return beside;
}

std::vector<NotCompared> CollectNotCompared(const Comparison& comparison) {
  constexpr size_t kMaxEntries = 100;
  std::vector<NotCompared> out;
  std::vector<std::string_view> last;
  for (const compare::Row& row : comparison.rows) {
    if (!row.uncompared) continue;
    const std::string_view reason = NotComparedReason(row, comparison.mode);
    auto it = std::find_if(out.begin(), out.end(),
                           [&](const NotCompared& n) { return n.reason == reason; });
    if (it == out.end()) {
      out.push_back({std::string(reason), 0, {}});
      last.emplace_back();
      it = out.end() - 1;
    }
    ++it->rows;
    const compare::Leaf& leaf = row.target != nullptr ? *row.target : *row.golden;
    const std::string_view entry = comparison.EntryName(leaf, row.target == nullptr);
    std::string_view& previous = last[static_cast<size_t>(it - out.begin())];
    if (entry != previous && it->entries.size() < kMaxEntries) it->entries.emplace_back(entry);
    previous = entry;
  }
  return out;
}

void LogRows(const Comparison& comparison, CompareTable& table, LogSink& log) {
  if (comparison.mode != compare::Mode::kTensor) return;
  constexpr size_t kFirstMetric = 8;
  constexpr size_t kMetrics = 6;
  for (size_t i = 0; i < comparison.rows.size(); ++i) {
    const auto cells = table.Cells(i);
    std::string line = fmt::format("[{}] Compare result:", cells[0].text);
    for (size_t k = kFirstMetric; k < kFirstMetric + kMetrics; ++k) {
      const report::Cell& cell = cells[k];
      line += fmt::format(
          " {}={}", table.columns()[k],
          cell.kind == report::Cell::Kind::kDouble ? PyFloatRepr(cell.d) : std::string(cell.text));
    }
    log.Info(line);
  }
}

// Again when a culprit was found: it is what the advice is about.
Status WriteAdvice(const RankOutcome& rank, LogSink& log) {
  AdvisorContext context = {
      rank.job.target_json, rank.job.golden_json, nullptr, {}, rank.not_compared};
  if (rank.first_bad) context.first_bad = &*rank.first_bad;
  if (rank.culprit && !rank.culprit->findings.empty())
    context.culprit_kind = culprit::KindName(rank.culprit->findings.front().kind);
  const std::string text = AdvisorText(*rank.advice, context);
  MSPROBE_ASSIGN(AtomicFile file, AtomicFile::Create(rank.advice_path));
  MSPROBE_TRY(file.Write(text));
  MSPROBE_TRY(file.Commit());
  MSPROBE_TRY(FitMode(rank.advice_path, Face::kOld));
  if (rank.advice->line) {
    log.Info(fmt::format("advice: spreadsheet row {}: {}", *rank.advice->line + 2, text));
  }
  return {};
}

std::unique_ptr<report::TableWriter> WriterFor(const std::string& path,
                                               const CompareOptions& options) {
  if (options.face == Face::kNew && !options.xlsx) return report::NewCsvWriter(path);
  report::XlsxOptions xlsx;
  if (options.face == Face::kOld && options.highlight) {
    xlsx.sheet = "Sheet";
    xlsx.styled_header = false;
    xlsx.everything_text = true;
  }
  return report::NewXlsxWriter(path, xlsx);
}

Status WriteReports(const CompareOptions& options, const std::string& stamp,
                    const Comparison& comparison, RankOutcome& out, LogSink& log,
                    const CancelToken* cancel) {
  const Names names = NamesOf(out.job, options);
  const std::string path = JoinPath(
      options.output_dir, WithStamp(comparison.interrupted ? names.partial : names.report, stamp));
  CompareTable table(comparison, options.face, out.user.get());
  const auto writer = WriterFor(path, options);
  MSPROBE_ASSIGN(out.reports, table.WriteTo(*writer, cancel));
  for (const std::string& report : out.reports) MSPROBE_TRY(FitMode(report, options.face));
  if (options.row_log) LogRows(comparison, table, log);
  if (comparison.by_layers) {
    out.mapping_path = JoinPath(options.output_dir, WithStamp(names.mapping, stamp));
    MSPROBE_TRY(WriteMapping(comparison, out.mapping_path));
    MSPROBE_TRY(FitMode(out.mapping_path, options.face));
  }
  if (options.face == Face::kOld && options.advisor) {
    out.advice_path = JoinPath(options.output_dir, WithStamp(names.advice, stamp));
    out.advice = Advise(comparison);
    out.first_bad = comparison.first_bad;
    MSPROBE_TRY(WriteAdvice(out, log));
  }
  return {};
}

// Opened before any work: a file that cannot be written is known at once.
Result<SharedOutputs> OpenShared(const CompareOptions& options, size_t jobs,
                                 const std::string& stamp) {
  SharedOutputs out;
  for (const std::string* path : {&options.json_path, &options.junit_path}) {
    if (!path->empty()) MSPROBE_TRY(CreateDirectories(DirName(*path)));
  }
  if (!options.json_path.empty()) {
    MSPROBE_ASSIGN(out.json, JsonRows::Create(options.json_path));
    out.turns = std::make_unique<JsonTurns>(*out.json, options.output_dir, jobs);
  }
  if (!options.junit_path.empty()) {
    MSPROBE_ASSIGN(out.junit, JunitReport::Create(options.junit_path));
    out.junit->Resize(jobs);
  }
  if (options.html) {
    const std::string name = WithStamp(std::string(kHtmlName), stamp);
    MSPROBE_ASSIGN(out.html, CompareHtml::Create(JoinPath(options.output_dir, name), jobs));
  }
  return out;
}

// Hidden, and the same for the same dumps and folder.
std::string JournalPath(const CompareOptions& options, const RankJob& job) {
  std::error_code ignored;
  const auto absolute = [&](const std::string& path) {
    return std::filesystem::weakly_canonical(path, ignored).string();
  };
  const std::string both = absolute(job.target_json) + "\n" + absolute(job.golden_json);
  const uint32_t sum =
      kernels::Crc32(0, reinterpret_cast<const std::byte*>(both.data()), both.size());
  return JoinPath(options.output_dir, fmt::format(".msprobe_resume_{:08x}", sum));
}

std::unique_ptr<compare::PieceJournal> OpenJournal(const CompareOptions& options,
                                                   const RankJob& job, LogSink& log) {
  if (!options.figures.empty()) return compare::PieceJournal::Open(options.figures, true);
  auto journal = compare::PieceJournal::Open(JournalPath(options, job), options.resume);
  if (!options.resume) return journal;
  if (journal && journal->known() > 0) {
    log.Warning(fmt::format("resumed: the figures of {} pieces of tensors are taken over",
                            journal->known()));
  } else {
    log.Warning(fmt::format("nothing to resume in {}: this pair is compared from the start",
                            options.output_dir));
  }
  return journal;
}

Status RunJob(const CompareOptions& options, const compare::Options& engine,
              const std::string& stamp, RankOutcome& out, LogSink& log, ProgressSink& progress,
              const CancelToken* cancel) {
  compare::Input input;
  input.target_json = out.job.target_json;
  input.golden_json = out.job.golden_json;
  input.target_stack = StackOf(out.job, options);
  MSPROBE_ASSIGN(const compare::Postprocessed products,
                 Postprocess(options, out.job, options.output_dir, log));
  input.target_files = products.target_files();
  input.golden_files = products.golden_files();
  input.scratch = options.output_dir;
  out.journal = OpenJournal(options, out.job, log);
  input.journal = out.journal.get();
  MSPROBE_ASSIGN(Comparison result, compare::CompareRank(input, engine, log, progress, cancel));
  out.interrupted = result.interrupted;
  if (out.interrupted) cancel = nullptr;  // what is there is written
  const auto comparison = std::make_shared<const Comparison>(std::move(result));
  if (comparison->rows.empty()) {
    return Error(ErrorCode::kNothingToDo, "nothing to compare: the dumps hold no values")
        .At(out.job.target_json);
  }
  out.not_compared = CollectNotCompared(*comparison);
  if (options.user_metrics && !out.interrupted) {
    MSPROBE_ASSIGN(UserColumns user,
                   RunUserMetrics(*options.user_metrics, input, *comparison, log, cancel));
    out.user = std::make_shared<const UserColumns>(std::move(user));
  }
  MSPROBE_TRY(WriteReports(options, stamp, *comparison, out, log, cancel));
  out.mode = comparison->mode;
  out.counts = comparison->counts;
  out.first_bad = comparison->first_bad;
  out.notes = comparison->notes;
  out.comparison = comparison;
  if (options.culprit != CulpritChoice::kOff) IndexEntries(*comparison, out);
  return {};
}

// The rows go to the shared outputs, and then, unless they are kept, away.
Status AddShared(const CompareOptions& options, size_t index, RankOutcome& out,
                 const SharedOutputs& shared, const CancelToken* cancel) {
  const std::shared_ptr<const Comparison> comparison = out.comparison;
  if (out.interrupted) cancel = nullptr;
  const std::shared_ptr<const UserColumns> user = out.user;
  if (!options.keep_rows) out.comparison.reset();
  if (!options.keep_rows) out.user.reset();
  if (shared.junit) {
    shared.junit->Add(index, JunitReport::SuiteOf(out.job, *comparison, options.face));
  }
  if (shared.html) {
    MSPROBE_ASSIGN(CompareHtml::Piece piece,
                   CompareHtml::PieceOf(shared.html->jobs(), options, out, *comparison, cancel));
    shared.html->Add(index, std::move(piece));
  }
  if (!shared.turns) return {};
  return shared.turns->Add(index, [&](JsonRows& rows) {
    return rows.Add(out.job, {*comparison, options.face, user.get()}, cancel);
  });
}

void Add(compare::Counts& to, const compare::Counts& c) {
  to.pass += c.pass;
  to.warning += c.warning;
  to.error += c.error;
  to.unmatched += c.unmatched;
  to.total += c.total;
  to.yes += c.yes;
  to.no += c.no;
  to.none += c.none;
  to.consequences += c.consequences;
}

// The earliest row counts; ranks run the same program, so the row is the best measure of time they
// share.
std::optional<size_t> FirstBadRank(const std::vector<RankOutcome>& ranks) {
  if (const auto found = FirstFound(ranks)) return found;
  std::optional<size_t> best;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (!ranks[i].first_bad) continue;
    if (best && ranks[*best].job.step != ranks[i].job.step) break;
    if (!best || ranks[i].first_bad->row_index < ranks[*best].first_bad->row_index) best = i;
  }
  return best;
}

// Keeps the warnings of a run for its summary.
class RecordingLog final : public LogSink {
 public:
  explicit RecordingLog(LogSink& inner) : inner_(inner) {}
  void Log(LogLevel level, std::string_view message) override {
    constexpr size_t kMaxMessages = 200;
    inner_.Log(level, message);
    if (level < LogLevel::kWarning) return;
    const std::lock_guard lock(mutex_);
    if (messages_.size() < kMaxMessages) {
      messages_.emplace_back(message);
    } else {
      ++dropped_;
    }
  }
  std::vector<std::string> Take() {
    if (dropped_ > 0) messages_.push_back(fmt::format("and {} more messages", dropped_));
    return std::move(messages_);
  }

 private:
  LogSink& inner_;
  std::mutex mutex_;
  std::vector<std::string> messages_;
  uint64_t dropped_ = 0;
};

Status WriteSummary(const CompareOptions& options, const CompareRun& run) {
  MSPROBE_ASSIGN(AtomicFile file, AtomicFile::Create(run.summary_path));
  MSPROBE_TRY(file.Write(SummaryJson(options, run)));
  MSPROBE_TRY(file.Commit());
  return FitMode(run.summary_path, options.face);
}

// A run that was not interrupted needs no figures any more but those of ranks that failed, on a
// full disk perhaps.
void CloseJournals(CompareRun& run, const CancelToken* cancel) {
  const bool complete = cancel == nullptr || !cancel->cancelled();
  for (RankOutcome& r : run.ranks) {
    if (r.journal && complete && !r.error) r.journal->Remove();
    r.journal.reset();
  }
}

// Tables and summary do not depend on the page: without it the run is done in part.
void FinishPage(const CompareOptions& options, CompareHtml& html, CompareRun& run, LogSink& log) {
  Status done = html.Finish(options, run);
  if (done.ok()) done = FitMode(run.html_path, options.face);
  if (done.ok()) return;
  run.messages.push_back("no page was written: " + done.error().ToString());
  log.Error(run.messages.back());
  run.html_path.clear();
  run.partial = true;
}

bool AllFailed(const CompareRun& run) {
  return std::all_of(run.ranks.begin(), run.ranks.end(),
                     [](const RankOutcome& r) { return r.error.has_value(); });
}

// The error of a run without a single report. Errors of several ranks are logged already.
Error FailureOf(const CompareRun& run, const CompareOptions& options) {
  const Error& first = *run.ranks.front().error;
  if (run.ranks.size() == 1 || first.code == ErrorCode::kCancelled) return first;
  return Error(first.code,
               fmt::format("none of the {} pairs of ranks could be compared", run.ranks.size()))
      .At(options.target);
}

struct Here {
  LogSink& log;
  RankProgress& ranks;
  CorePool& cores;
};

// Ranks run side by side; a rank that is done leaves its threads to the others.
Status RunHere(const CompareOptions& options, const std::string& stamp, const SharedOutputs& shared,
               CompareRun& run, Here here, const CancelToken* cancel) {
  const compare::Options engine = EngineOptions(options, here.cores);
  ParallelFor(
      run.ranks.size(), here.cores,
      [&](size_t i) {
        RankOutcome& out = run.ranks[i];
        RankLog rank_log(here.log, RankLabel(out.job));
        Status done = RunJob(options, engine, stamp, out, rank_log, here.ranks.Of(i), cancel);
        if (done.ok()) done = AddShared(options, i, out, shared, cancel);
        if (const Status ended = shared.turns ? shared.turns->Ended(i) : Status(); done.ok()) {
          done = ended;
        }
        here.ranks.Done(i);
        if (done.ok()) return;
        out.error = done.error();
        // The error of a lone pair is that of the whole run and is said by the caller.
        if (run.ranks.size() > 1 && out.error->code != ErrorCode::kCancelled)
          rank_log.Error("not compared: " + out.error->ToString());
      },
      cancel);
  return shared.turns ? shared.turns->Finish() : Status();
}

void MarkInterrupted(CompareRun& run, const CancelToken* cancel) {
  if (cancel == nullptr || !cancel->cancelled()) return;
  for (RankOutcome& r : run.ranks) {
    if (r.reports.empty() && !r.error) r.error = Error(ErrorCode::kCancelled, "interrupted");
  }
}

}  // namespace

Result<compare::Postprocessed> Postprocess(const CompareOptions& options, const RankJob& job,
                                           const std::string& scratch, LogSink& log) {
  config::PostprocessConfig config = options.postprocess;
  if (options.backend != compare::Backend::kNone) {
    config.target_lengths.clear();  // no clean-up (compare.md 18)
    config.golden_lengths.clear();
  }
  return compare::Postprocessed::Make(config, job.target_json, job.golden_json, scratch, log);
}

compare::Options EngineOptions(const CompareOptions& options, CorePool& cores) {
  compare::Options out;
  out.face = options.face;
  out.rules = options.rules;
  out.rule_file = options.rule_file;
  out.fuzzy = options.fuzzy;
  out.backend = options.backend;
  out.name_join = options.xlsx ? ";\n" : ";  ";
  out.highlight = options.highlight && options.face == Face::kOld;
  out.data_mapping = options.data_mapping;
  out.cell_mapping = options.cell_mapping;
  out.cell_mapping_flag = options.cell_mapping_flag;
  out.api_mapping = options.api_mapping;
  out.api_mapping_flag = options.api_mapping_flag;
  out.layer_mapping = options.layer_mapping;
  out.workers = 1;
  out.cores = &cores;
  out.memory_limit = options.memory_limit;
  return out;
}

Status FitMode(const std::string& path, Face face) {
  if (face != Face::kOld) return {};
  struct stat made{};
  if (stat(path.c_str(), &made) != 0) return ErrnoError(errno, "stat", path);
  constexpr mode_t kAtMost = 0640;
  if (chmod(path.c_str(), made.st_mode & kAtMost) != 0) return ErrnoError(errno, "chmod", path);
  return {};
}

Status RunPair(const PairRun& run, RankOutcome& out) {
  MSPROBE_TRY(RunJob(run.options, run.engine, run.stamp, out, run.log, run.progress, run.cancel));
  out.journal.reset();
  return {};
}

Status SearchPair(const CompareOptions& options, RankOutcome& out, LogSink& log) {
  CulpritSearch().Run(options, out, log, nullptr);
  const bool found = out.culprit && !out.culprit->findings.empty();
  return found && out.advice ? WriteAdvice(out, NullLog()) : Status();
}

std::string RulesText() { return compare::ExplainRules(); }

std::string RankLabel(const RankJob& job) {
  if (job.step.empty()) return job.rank;
  return job.rank.empty() ? job.step : job.step + " " + job.rank;
}

namespace {

Status CheckSuffix(const CompareOptions& options, const ComparePlan& plan) {
  if (options.suffix.find('/') != std::string::npos) {
    return Error(ErrorCode::kInvalidArgument,
                 "a suffix is part of a file name and cannot hold a slash")
        .At("suffix");
  }
  if (!options.suffix.empty() && plan.folders) {
    return Error(ErrorCode::kInvalidArgument,
                 "a suffix is for two files only: folders name their reports by rank")
        .At("suffix");
  }
  return {};
}

// Before any work: the head of the first target says what made it.
Status CheckFramework(const CompareOptions& options, const ComparePlan& plan) {
  if (!options.api_mapping && !options.api_mapping_flag) return {};
  const std::string& path = plan.jobs.front().target_json;
  const auto info =
      dump::ReadDump(path, [](std::string_view, const json::Value&) { return false; });
  if (!info.ok() || compare::IsMindSpore(info->header.framework)) return {};
  return compare::ApiMappingError(path);
}

void WarnOfMissing(const std::vector<MissingPart>& missing, LogSink& log) {
  for (const MissingPart& m : missing) {
    log.Warning(fmt::format("{}{}{}: not compared: {}", m.step,
                            m.step.empty() || m.rank.empty() ? "" : " ", m.rank, m.reason));
  }
}

// Figures of the whole run from those of its ranks.
void SumUp(CompareRun& run) {
  run.partial = !run.missing.empty();
  for (const RankOutcome& r : run.ranks) {
    Add(run.counts, r.counts);
    run.partial = run.partial || r.error.has_value() || r.interrupted;
  }
  run.first_bad_rank = FirstBadRank(run.ranks);
}

}  // namespace

Result<CompareRun> Compare(const CompareOptions& options, LogSink& outer_log,
                           ProgressSink& progress, const CancelToken* cancel) {
  CompareRun run;
  run.started = UnixSeconds();
  const double begin = MonotonicSeconds();
  RecordingLog log(outer_log);
  MSPROBE_ASSIGN(ComparePlan plan, PlanCompare(options.target, options.golden,
                                               {options.rank_ids, options.step_ids}, log));
  MSPROBE_TRY(CheckSuffix(options, plan));
  MSPROBE_TRY(CheckFramework(options, plan));
  constexpr unsigned kPrivate = 0750, kAnyone = 0777;
  MSPROBE_ASSIGN(
      const OutputFolder folder,
      OutputFolder::Make(options.output_dir, options.face == Face::kOld ? kPrivate : kAnyone));
  run.missing = std::move(plan.missing);
  WarnOfMissing(run.missing, log);
  const std::string stamp = StampFor(plan.jobs, options, run.started);
  MSPROBE_ASSIGN(const SharedOutputs shared, OpenShared(options, plan.jobs.size(), stamp));
  run.ranks.resize(plan.jobs.size());
  RankProgress ranks(plan.jobs.size(), progress);
  CorePool cores((options.workers != 0 ? options.workers : AvailableCores()) - 1);
  for (size_t i = 0; i < plan.jobs.size(); ++i) run.ranks[i].job = std::move(plan.jobs[i]);
  if (options.engine != nullptr) {
    MSPROBE_TRY(CompareWithEngine(options, stamp, shared, run, log, cancel));
  }
  if (options.engine == nullptr) {
    MSPROBE_TRY(RunHere(options, stamp, shared, run, {log, ranks, cores}, cancel));
  }
  MarkInterrupted(run, cancel);
  CloseJournals(run, cancel);
  if (AllFailed(run)) return FailureOf(run, options);
  if (shared.json) MSPROBE_TRY(shared.json->Commit());
  if (options.engine == nullptr) FindCulprits(options, run, log, cancel);
  for (const RankOutcome& r : run.ranks) {
    const bool found = r.culprit && !r.culprit->findings.empty();
    if (found && r.advice) MSPROBE_TRY(WriteAdvice(r, NullLog()));
  }
  SumUp(run);
  run.messages = log.Take();
  run.seconds = MonotonicSeconds() - begin;
  if (shared.junit) MSPROBE_TRY(shared.junit->Finish(run));
  if (shared.html) run.html_path = shared.html->path();
  run.summary_path = JoinPath(options.output_dir, WithStamp("compare_summary_{ts}.json", stamp));
  if (shared.html) FinishPage(options, *shared.html, run, outer_log);
  MSPROBE_TRY(WriteSummary(options, run));
  return run;
}

}  // namespace msprobe::app
