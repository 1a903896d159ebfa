#include "app/analysis_app.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "app/analysis_report.h"
#include "app/compare_fields.h"
#include "app/json_lines.h"
#include "app/output_folder.h"
#include "base/file.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "base/time.h"
#include "compare/overflow.h"
#include "dump/reader.h"
#include "json/json.h"

namespace msprobe::app {
namespace {

constexpr size_t kMaxSources = 100;

// ---- NaN and infinity in one dump
// ----------------------------------------------------------------

Result<std::vector<dump::RankDir>> RanksOf(const std::string& dir, LogSink& log) {
  if (PathExists(JoinPath(dir, "dump.json"))) {
    dump::RankDir rank;
    rank.name = std::string(BaseName(dir.substr(0, dir.find_last_not_of('/') + 1)));
    rank.path = dir;
    rank.number = RankNumber(rank.name);
    return std::vector<dump::RankDir>{rank};
  }
  MSPROBE_ASSIGN(std::vector<dump::RankDir> all, dump::ListRanks(dir));
  WarnOfStrayFolders(dir, all, log);
  const bool named = std::any_of(all.begin(), all.end(), [](const dump::RankDir& r) {
    return r.kind != dump::RankDir::Kind::kProcess;
  });
  std::vector<dump::RankDir> out;
  for (dump::RankDir& r : all) {
    const bool process = r.kind == dump::RankDir::Kind::kProcess;
    if (process && named) continue;
    if (process) r.number = static_cast<int64_t>(out.size());
    out.push_back(std::move(r));
  }
  if (!out.empty()) return out;
  MSPROBE_ASSIGN(const std::vector<dump::StepDir> steps, dump::ListSteps(dir));
  if (!steps.empty()) {
    return Error(ErrorCode::kInvalidArgument, "holds steps, not ranks")
        .At(dir)
        .Hint(fmt::format("give one of them, like {}", steps.front().path));
  }
  return Error(ErrorCode::kNotFound, "no rank folder inside")
      .At(dir)
      .Hint("expected rank, rank<n> or proc<pid> folders with dump.json");
}

struct OverflowPart {
  dump::RankDir dir;
  compare::OverflowRank rank;
  std::optional<Error> error;
};

void Read(OverflowPart& part) {
  auto read = compare::ReadOverflow(JoinPath(part.dir.path, "dump.json"));
  if (read.ok()) {
    part.rank = std::move(read).value();
  } else {
    part.error = std::move(read).error();
  }
}

// What a worker gives for the folder of a rank.
struct ReadRank {
  std::optional<Error> error;
  compare::OverflowRank rank;
};
template <class Archive>
void Fields(Archive& a, ReadRank& r) {
  a(r.error, r.rank);
}

Status ReadWithEngine(Engine& engine, std::vector<OverflowPart>& parts, const CancelToken* cancel) {
  std::vector<std::string> payloads;
  for (OverflowPart& part : parts) payloads.push_back(Packed(part.dir.path));
  MSPROBE_ASSIGN(const auto results, RunSmall(engine, payloads, cancel));
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!results[i].ok()) {
      parts[i].error = results[i].error();
      continue;
    }
    std::optional<ReadRank> read = Unpacked<ReadRank>(*results[i]);
    if (!read) return Error(ErrorCode::kMalformed, "the worker is of another version");
    parts[i].error = std::move(read->error);
    parts[i].rank = std::move(read->rank);
  }
  return {};
}

compare::RankTrace TraceOf(const OverflowPart& part) {
  compare::RankTrace out;
  out.rank = part.dir.number;
  for (const compare::OverflowEntry& e : part.rank.entries) {
    out.entries.push_back({e.name, e.IsSource(), e.communication, e.comm});
  }
  return out;
}

AnalysisRank Describe(const OverflowPart& part) {
  AnalysisRank out;
  out.rank = part.dir.name;
  out.path = part.dir.path;
  if (part.error) {
    out.problem = part.error->ToString();
    return out;
  }
  out.entries = part.rank.total;
  for (const compare::OverflowEntry& e : part.rank.entries) {
    if (e.IsSource() && !e.communication) {  // what a call received is no source
      ++out.bad;
      if (out.sources.size() < kMaxSources) out.sources.push_back(e.name);
    }
    if (e.bad_input && !out.first_consumer) {
      out.first_consumer = e.name;
      out.consumer_reason = e.reason;
    }
  }
  return out;
}

Status WriteAnomalies(const OverflowOptions& options, const std::vector<OverflowPart>& parts,
                      const compare::FirstEntries& found, AnalysisRun& run, LogSink& log) {
  std::string text;
  json::Writer w(text, 2);
  w.StartObject();
  for (size_t i = 0; i < found.places.size();) {
    const OverflowPart& part = parts[found.places[i].rank];
    const EntryContext context(part.dir.path, log);
    w.Key(fmt::format("rank_{}", part.dir.number)).StartArray();
    const size_t rank = found.places[i].rank;
    for (; i < found.places.size() && found.places[i].rank == rank; ++i) {
      const compare::OverflowEntry& e = part.rank.entries[found.places[i].entry];
      run.first.push_back({"", part.dir.number, e.name, e.reason});
      MSPROBE_ASSIGN(const json::Document data, json::ParseDocument(e.data_info));
      w.StartObject();
      w.Key("op_name").String(e.name);
      w.Key("data_info").Copy(data.root());
      w.Key("construct_info");
      context.WriteParents(w, e.name);
      w.Key("stack_info");
      context.WriteStack(w, e.name);
      w.EndObject();
    }
    w.EndArray();
  }
  w.EndObject();
  std::string path = FreeNanoPath(options.output_dir, "anomaly_analyze_");
  MSPROBE_TRY(WriteTextFile(path, text));
  run.reports.push_back(std::move(path));
  return {};
}

// A line per call with a bad input or output; `first`: what the search over ranks ended with.
Status WriteLines(const std::vector<OverflowPart>& parts, const compare::FirstEntries& found,
                  JsonLines& out) {
  if (!out.wanted()) return {};
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const std::vector<compare::OverflowEntry>& entries = parts[rank].rank.entries;
    uint64_t row = 0;
    for (size_t i = 0; i < entries.size(); ++i) {
      const compare::OverflowEntry& e = entries[i];
      if (!e.bad_input && !e.bad_output) continue;
      const bool first = std::any_of(found.places.begin(), found.places.end(),
                                     [&](const auto& p) { return p.rank == rank && p.entry == i; });
      std::string text;
      json::Writer w(text);
      w.StartObject();
      w.Key("rank").String(parts[rank].dir.name);
      w.Key("row").Uint(row++);
      w.Key("entry").String(e.name);
      w.Key("bad_input").Bool(e.bad_input);
      w.Key("bad_output").Bool(e.bad_output);
      w.Key("source").Bool(e.IsSource() && !e.communication);
      w.Key("first").Bool(first);
      w.Key("reason").String(e.reason);
      w.EndObject();
      MSPROBE_TRY(out.Write(text + "\n"));
    }
  }
  return out.Commit();
}

Status CheckFramework(const OverflowPart& part) {
  const std::string& framework = part.rank.framework;
  if (framework.empty() || framework == "pytorch") return {};
  return Error(ErrorCode::kUnsupported, fmt::format("a dump of {}", framework))
      .At(JoinPath(part.dir.path, "dump.json"))
      .Key("framework")
      .Hint("this build reads PyTorch dumps only");
}

}  // namespace

Result<AnalysisRun> CheckOverflow(const OverflowOptions& options, LogSink& outer_log,
                                  ProgressSink& progress, const CancelToken* cancel) {
  AnalysisRun run;
  run.command = options.command;
  run.started = UnixSeconds();
  const double begin = MonotonicSeconds();
  MessageLog log(outer_log);
  MSPROBE_ASSIGN(const std::vector<dump::RankDir> dirs, RanksOf(options.input_dir, log));
  MSPROBE_ASSIGN(const OutputFolder folder, OutputFolder::Make(options.output_dir));
  MSPROBE_ASSIGN(JsonLines json, JsonLines::Create(options.json_path));
  std::vector<OverflowPart> parts(dirs.size());
  std::atomic<uint64_t> done{0};
  for (size_t i = 0; i < dirs.size(); ++i) parts[i].dir = dirs[i];
  if (options.engine != nullptr) MSPROBE_TRY(ReadWithEngine(*options.engine, parts, cancel));
  ParallelFor(
      options.engine != nullptr ? 0 : dirs.size(), options.workers,
      [&](size_t i) {
        Read(parts[i]);
        progress.Update("read", ++done, dirs.size());
      },
      cancel);
  if (cancel != nullptr && cancel->cancelled()) return Error(ErrorCode::kCancelled, "interrupted");
  std::vector<compare::RankTrace> traces;
  for (const OverflowPart& part : parts) {
    if (part.error) {
      run.partial = true;
      // The error of a lone rank is that of the whole run and is said by the caller.
      if (parts.size() > 1) {
        log.Error(fmt::format("{} is left out: {}", part.dir.name, part.error->ToString()));
      }
    } else {
      MSPROBE_TRY(CheckFramework(part));
      if (part.rank.torn) {
        log.Warning(fmt::format("{}: dump.json ends early, {} entries were recovered",
                                part.dir.name, part.rank.total));
      }
    }
    traces.push_back(TraceOf(part));
    run.ranks.push_back(Describe(part));
  }
  if (std::all_of(parts.begin(), parts.end(), [](const auto& p) { return p.error.has_value(); })) {
    const Error& cause = *parts.front().error;
    if (parts.size() == 1) return cause;
    return Error(cause.code, fmt::format("none of the {} ranks could be read", parts.size()))
        .At(options.input_dir);
  }
  const compare::FirstEntries found = compare::FindFirstEntries(traces);
  if (!found.places.empty()) MSPROBE_TRY(WriteAnomalies(options, parts, found, run, log));
  MSPROBE_TRY(WriteLines(parts, found, json));
  run.messages = log.Take();
  run.seconds = MonotonicSeconds() - begin;
  MSPROBE_TRY(WriteAnalysisSummary(options.output_dir, options.echo, {options.input_dir}, run));
  return run;
}

Status RunOverflowItem(std::string_view payload, const ItemContext& context) {
  const auto path = Unpacked<std::string>(payload);
  if (!path) return Error(ErrorCode::kMalformed, "no work item of this version");
  OverflowPart part;
  part.dir.path = *path;
  Read(part);
  ReadRank out = {std::move(part.error), std::move(part.rank)};
  return context.emit(Packed(out));
}

std::string AnalysisAnswer(const AnalysisRun& run) {
  constexpr size_t kMostFirst = 8, kMostRanks = 4;
  const bool overflow = run.command != "compare";
  std::string out;
  if (run.first.empty()) {
    out += overflow ? "No entry with clean inputs gave NaN or infinity.\n"
                    : "No compared output differs.\n";
  } else {
    out += overflow ? "NaN or infinity came first from:\n" : "The runs differ first in:\n";
  }
  for (size_t i = 0; i < run.first.size() && i < kMostFirst; ++i) {
    const FoundEntry& f = run.first[i];
    out += fmt::format("  {}{}rank{}: {} ({})\n", f.step, f.step.empty() ? "" : " ", f.rank,
                       VisibleText(f.entry), VisibleText(f.reason));
  }
  if (run.first.size() > kMostFirst) {
    out += fmt::format("  and {} more\n", run.first.size() - kMostFirst);
  }
  size_t shown = 0;
  for (const AnalysisRank& r : run.ranks) {
    if (!r.first_consumer || ++shown > kMostRanks) continue;
    if (shown == 1) out += "It reached first:\n";
    out += fmt::format("  {}: {} ({})\n", r.rank, VisibleText(*r.first_consumer),
                       VisibleText(r.consumer_reason));
  }
  uint64_t not_compared = 0;
  for (const AnalysisRank& r : run.ranks) not_compared += r.not_compared;
  if (not_compared > 0) {
    out +=
        fmt::format("{} entries have no output that could be compared; they were not searched.\n",
                    not_compared);
  }
  for (const std::string& path : run.reports) out += "Report: " + VisibleText(path) + "\n";
  return out + "Summary: " + VisibleText(run.summary_path) + "\n";
}

std::string AnalysisClosingLine(const AnalysisRun& run) {
  uint64_t entries = 0, bad = 0, left_out = 0;
  for (const AnalysisRank& r : run.ranks) {
    entries += r.entries;
    bad += r.bad;
    left_out += !r.problem.empty();
  }
  return fmt::format("ranks {}, left out {}, entries {}, {} {}, first {}, path {}",
                     run.ranks.size(), left_out, entries,
                     run.command == "compare" ? "different" : "sources", bad,
                     run.first.empty() ? "none" : VisibleText(run.first.front().entry),
                     VisibleText(run.reports.empty() ? run.summary_path : run.reports.front()));
}

}  // namespace msprobe::app
