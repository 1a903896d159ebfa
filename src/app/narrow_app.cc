#include "app/narrow_app.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <unordered_set>

#include "app/compare_app.h"
#include "app/compare_text.h"
#include "app/config_file.h"
#include "base/file.h"
#include "base/text.h"
#include "compare/store.h"
#include "culprit/culprit.h"
#include "dump/reader.h"
#include "json/json.h"

namespace msprobe::app {
namespace {

using compare::Comparison;
using compare::Row;
using compare::Side;
using compare::Verdict;

// Where the dumps part: a row of one pair of files.
struct Place {
  size_t row = 0;
  std::string reason;
};

// What the search for the operator at fault says, when the dumps hold its evidence: it follows each
// tensor to where it came from, which the order of rows does not.
std::optional<Place> CulpritOf(const RankJob& job, const Comparison& comparison) {
  if (comparison.is_debug) return std::nullopt;
  culprit::Options search;
  search.needs_evidence = true;
  const Result<culprit::Report> report = culprit::FindCulprit(
      {.target_json = job.target_json, .golden_json = job.golden_json}, search);
  if (!report.ok() || !report->evidence || report->findings.empty()) return std::nullopt;
  const culprit::Finding& finding = report->findings.front();
  for (size_t i = 0; i < comparison.rows.size(); ++i) {
    const Row& row = comparison.rows[i];
    const bool here =
        (row.target != nullptr && comparison.EntryName(*row.target, false) == finding.entry) ||
        (row.golden != nullptr &&
         comparison.EntryName(*row.golden, true) ==
             (finding.golden_entry.empty() ? finding.entry : finding.golden_entry));
    if (here) return Place{i, finding.sentence};
  }
  return std::nullopt;
}

bool IsPass(const Row& row) { return row.verdict == Verdict::kPass && !row.uncompared; }

std::optional<Place> PlaceOf(const RankJob& job, const Comparison& comparison) {
  if (std::optional<Place> culprit = CulpritOf(job, comparison)) return culprit;
  if (comparison.first_bad) {
    return Place{static_cast<size_t>(comparison.first_bad->row_index),
                 comparison.first_bad->reason};
  }
  // Nothing is wrong by itself; a call that only one side made is a place as well.
  for (size_t i = 0; i < comparison.rows.size(); ++i) {
    const Row& row = comparison.rows[i];
    if (IsPass(row)) continue;
    std::string reason = ErrMessage(row, comparison.mode, compare::Face::kNew);
    if (row.target == nullptr) reason = "only in the golden dump";
    return Place{i, reason.empty() ? "could not be compared" : std::move(reason)};
  }
  return std::nullopt;
}

// The number behind `prefix` in the last part of `path` that is one, "…/step3/rank0": 3 for "step".
std::optional<int64_t> NumberIn(std::string_view path, std::string_view prefix) {
  std::optional<int64_t> found;
  while (!path.empty()) {
    const size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    int64_t number = 0;
    constexpr int64_t kMost = 1'000'000;  // of a configuration
    if (part.starts_with(prefix) && part.size() > prefix.size()) {
      const char* const end = part.data() + part.size();
      const auto [at, code] = std::from_chars(part.data() + prefix.size(), end, number);
      if (code == std::errc() && at == end && number >= 0 && number <= kMost) found = number;
    }
    path = slash == std::string_view::npos ? std::string_view() : path.substr(slash + 1);
  }
  return found;
}

std::optional<int64_t> SharedNumber(const RankJob& job, std::string_view prefix) {
  const auto a = NumberIn(job.target_json, prefix), b = NumberIn(job.golden_json, prefix);
  return a == b ? a : std::nullopt;
}

// The same call in the other direction, or the call whose gradients these are; "" when there is
// none.
std::string Partner(std::string_view name) {
  for (const auto& [from, to] :
       {std::pair<std::string_view, std::string_view>(".forward", ".backward"),
        {".backward", ".forward"}}) {
    const size_t at = name.rfind(from);
    if (at == std::string_view::npos) continue;
    const std::string_view rest = name.substr(at + from.size());
    if (!rest.empty() && !rest.starts_with('.')) continue;
    return std::string(name.substr(0, at)) + std::string(to) + std::string(rest);
  }
  return "";
}

// The entries of one side that are worth recording around one of them.
class Surroundings {
 public:
  Surroundings(const Side& side, const std::string& json, int64_t around)
      : side_(side), around_(around) {
    const auto parents = dump::ReadConstruct(JoinPath(DirName(json), "construct.json"));
    if (!parents.ok()) return;
    for (const auto& [child, parent] : *parents) containers_.insert(parent);
  }

  // Modules that hold other calls would bring all of them in: only the bad entry itself may be one.
  void Collect(size_t entry, std::vector<std::string>& out) const {
    std::vector<std::string> before;
    int64_t left = around_;
    for (size_t i = entry; i-- > 0 && left > 0;) {
      if (IsContainer(i)) continue;
      before.push_back(side_.entries[i].name);
      --left;
    }
    for (size_t i = before.size(); i-- > 0;) Add(before[i], out);
    Add(side_.entries[entry].name, out);
    left = around_;
    for (size_t i = entry + 1; i < side_.entries.size() && left > 0; ++i) {
      if (IsContainer(i)) continue;
      Add(side_.entries[i].name, out);
      --left;
    }
  }

 private:
  bool IsContainer(size_t entry) const {
    const std::string& name = side_.entries[entry].name;
    return containers_.contains(name) || containers_.contains(Partner(name));
  }
  void Add(const std::string& name, std::vector<std::string>& out) const {
    if (name.empty()) return;  // a list with an empty text lets everything pass
    constexpr std::string_view kGrads = "parameters_grad";
    if (const size_t at = name.rfind(kGrads); at != std::string::npos) {
      // The gradients of a module's parameters are sums over its calls: all of them.
      const std::string module = name.substr(0, at);
      if (std::find(out.begin(), out.end(), module) == out.end()) out.push_back(module);
      return;
    }
    for (const std::string& wanted : {name, Partner(name)}) {
      const bool there = std::any_of(side_.entries.begin(), side_.entries.end(),
                                     [&](const compare::Entry& e) { return e.name == wanted; });
      if (there && std::find(out.begin(), out.end(), wanted) == out.end()) out.push_back(wanted);
    }
  }

  const Side& side_;
  int64_t around_;
  std::unordered_set<std::string> containers_;
};

void AddNames(const RankJob& job, const Comparison& comparison, const Row& row, int64_t around,
              NarrowRun& out) {
  const Comparison::Store& store = *comparison.store;
  if (row.target != nullptr) {
    Surroundings(store.target, job.target_json, around).Collect(row.target->entry, out.names);
  }
  if (row.golden != nullptr) {
    Surroundings(store.golden, job.golden_json, around).Collect(row.golden->entry, out.names);
  }
}

std::string ConfigText(const NarrowRun& run) {
  std::string out;
  json::Writer writer(out, 2);
  writer.StartObject();
  writer.Key("_comment")
      .String(fmt::format("msprobe narrow: the dumps part at {}: {}", run.row, run.reason));
  writer.Key("task").String("tensor").Key("level").String(run.level);
  for (const auto& [key, number] :
       {std::pair("rank", run.rank_number), std::pair("step", run.step_number)}) {
    writer.Key(key).StartArray();
    if (number) writer.Int(*number);
    writer.EndArray();
  }
  writer.Key("tensor").StartObject().Key("scope").StartArray().EndArray().Key("list").StartArray();
  for (const std::string& name : run.names) writer.String(name);
  writer.EndArray().Key("data_mode").StartArray().String("all").EndArray().EndObject();
  writer.EndObject();
  return out + "\n";
}

// The level that sees more than that of the dump.
std::string NextLevel(const Side& side) {
  const std::string& level = side.info.header.level;
  if (level == "L1" || level == "mix") return level;
  return level == "L0" ? "mix" : "L1";
}

Result<NarrowRun> FromPair(const RankJob& job, const Comparison& comparison, const Place& place,
                           const NarrowOptions& options) {
  const Row& row = comparison.rows[place.row];
  const compare::Leaf& leaf = row.target != nullptr ? *row.target : *row.golden;
  NarrowRun out;
  out.entry = comparison.EntryName(leaf, row.target == nullptr);
  out.row = leaf.name;
  out.reason = place.reason;
  out.step = job.step;
  out.rank = job.target_rank;
  out.step_number = SharedNumber(job, "step");
  out.rank_number = SharedNumber(job, "rank");
  out.level = NextLevel(comparison.store->target);
  out.notes = comparison.notes;
  out.output = options.output;
  if (comparison.is_debug) {
    return Error(ErrorCode::kUnsupported, "debug.json holds no calls to narrow to")
        .At(job.target_json);
  }
  AddNames(job, comparison, row, options.around, out);
  if (out.names.empty()) {
    return Error(ErrorCode::kUnsupported, "the entry where the dumps part has no name")
        .At(job.target_json);
  }
  return out;
}

// The pair of the first step with a bad entry whose row comes first.
Result<NarrowRun> FindPlace(const std::vector<RankJob>& jobs, const NarrowOptions& options,
                            LogSink& log, ProgressSink& progress, const CancelToken* cancel) {
  compare::Options engine;
  engine.rules = compare::RuleSet::kDefault;
  std::optional<NarrowRun> best;
  size_t best_row = 0;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const RankJob& job = jobs[i];
    if (best && job.step != best->step) break;
    Result<Comparison> comparison = compare::CompareRank(
        {job.target_json, job.golden_json, std::nullopt}, engine, log, progress, cancel);
    if (!comparison.ok()) {
      if (jobs.size() == 1 || comparison.error().code == ErrorCode::kCancelled)
        return std::move(comparison).error();
      log.Warning(comparison.error().ToString());
      continue;
    }
    const std::optional<Place> place = PlaceOf(job, *comparison);
    if (!place || (best && place->row >= best_row)) continue;
    MSPROBE_ASSIGN(best, FromPair(job, *comparison, *place, options));
    best_row = place->row;
  }
  if (best) return *std::move(best);
  return Error(ErrorCode::kNothingToDo, "the dumps do not part: every row passes")
      .At(options.target)
      .Hint("record more (risk_level \"ALL\", summary_mode \"sketch\"), or other steps");
}

}  // namespace

Result<NarrowRun> Narrow(const NarrowOptions& options, LogSink& log, ProgressSink& progress,
                         const CancelToken* cancel) {
  MSPROBE_TRY(CheckConfigFile(options.output, options.force));
  std::vector<Error> problems = CheckComparePaths(options.target, options.golden);
  if (!problems.empty()) return std::move(problems.front());
  MSPROBE_ASSIGN(const ComparePlan plan, PlanCompare(options.target, options.golden,
                                                     {options.rank_ids, options.step_ids}, log));
  MSPROBE_ASSIGN(NarrowRun run, FindPlace(plan.jobs, options, log, progress, cancel));
  MSPROBE_ASSIGN(AtomicFile file, AtomicFile::Create(options.output));
  MSPROBE_TRY(file.Write(ConfigText(run)));
  MSPROBE_TRY(file.Commit());
  return run;
}

std::string NarrowText(const NarrowRun& run) {
  std::string where = run.step;
  if (!run.rank.empty()) where += (where.empty() ? "" : " ") + run.rank;
  return fmt::format(
      "First bad entry: {}{}\n  {}: {}\n"
      "The next run records the tensors of {} calls around it.\n"
      "next: run both sides again with\n"
      "  PrecisionDebugger(config_path=…, narrow=\"{}\")\n"
      "and compare what they write, <dump_path>_narrow\n",
      VisibleText(run.entry), where.empty() ? "" : " in " + where, VisibleText(run.row),
      VisibleText(run.reason), run.names.size(), VisibleText(run.output));
}

}  // namespace msprobe::app
