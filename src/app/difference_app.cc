// The search for the first difference (compare.md 19): AnalyzeDifferences of analysis_app.h.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "app/analysis_app.h"
#include "app/analysis_report.h"
#include "app/compare_table.h"
#include "app/difference_part.h"
#include "app/item_stream.h"
#include "app/json_lines.h"
#include "app/json_rows.h"
#include "app/output_folder.h"
#include "app/rank_progress.h"
#include "base/file.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "base/time.h"
#include "compare/first_difference.h"
#include "json/json.h"

namespace msprobe::app {
namespace {

using compare::CellValue;
using compare::Comparison;
using compare::EntryDifference;
using Part = DifferencePart;
using PartHead = DifferenceHead;
using compare::Leaf;
using compare::State;

constexpr size_t kMaxNames = 100;

std::string_view OrNone(std::string_view text) { return text.empty() ? "None" : text; }

void WriteLines(json::Writer& w, const std::vector<std::string>* lines) {
  if (lines == nullptr) {
    w.String("N/A");
    return;
  }
  w.StartArray();
  for (const std::string& line : *lines) w.String(line);
  w.EndArray();
}

// One row with every column of the report, as it is before the rules speak, and six more keys.
void WriteItem(json::Writer& w, const Comparison& comparison, CompareTable& table, size_t index,
               std::string_view entry) {
  const compare::Row& row = comparison.rows[index];
  const auto cells = table.Cells(index);
  w.StartObject();
  for (size_t c = 0; c < cells.size(); ++c) {
    const std::string& column = table.columns()[c];
    w.Key(column);
    if (column == "Result" || column == "Accuracy Reached or Not" || column == "Err_message") {
      w.String("");
    } else if (column == "NPU_Stack_Info") {
      WriteLines(w, row.first_of_entry ? comparison.Stack(*row.target) : nullptr);
    } else {
      WriteJsonCell(w, cells[c], false);
    }
  }
  const Leaf none;
  const Leaf& golden = row.golden == nullptr ? none : *row.golden;
  w.Key("state").String(StateName(row.target->state));
  w.Key("api_origin_name").String(entry);
  w.Key("NPU P2POp op").String(OrNone(row.target->more->p2p_op));
  w.Key("Bench P2POp op").String(OrNone(golden.more->p2p_op));
  w.Key("NPU P2POp peer").String(OrNone(row.target->more->p2p_peer));
  w.Key("Bench P2POp peer").String(OrNone(golden.more->p2p_peer));
  w.EndObject();
}

// Names with fewer than four components are no calls.
bool IsCall(std::string_view name) { return std::count(name.begin(), name.end(), '.') >= 3; }

Status WriteRankReport(const Part& part, compare::Face face, const CancelToken* cancel) {
  constexpr size_t kPiece = 1 << 20;
  MSPROBE_ASSIGN(AtomicFile file, AtomicFile::Create(part.report));
  std::string text;
  json::Writer w(text, 4);
  CompareTable table(*part.comparison, face);
  w.StartObject();
  for (const EntryDifference& entry : part.entries) {
    if (!IsCall(entry.name)) continue;
    if (cancel != nullptr && cancel->cancelled()) {
      return Error(ErrorCode::kCancelled, "interrupted while the report was written");
    }
    w.Key(entry.name).StartObject();
    w.Key("is_same").Bool(entry.same);
    if (!entry.same) w.Key("reason").String(entry.reason);
    if (!entry.compared) w.Key("compared").Bool(false);
    w.Key("op_items").StartArray();
    for (size_t i = entry.first; i < entry.last; ++i) {
      WriteItem(w, *part.comparison, table, i, entry.name);
    }
    w.EndArray();
    w.EndObject();
    if (text.size() < kPiece) continue;
    MSPROBE_TRY(file.Write(text));
    text.clear();
  }
  w.EndObject();
  MSPROBE_TRY(file.Write(text));
  return file.Commit();
}

void WriteValue(json::Writer& w, const CellValue& value) {
  switch (value.kind()) {
    case CellValue::Kind::kBool:
      w.Bool(value.as_bool());
      return;
    case CellValue::Kind::kInt:
      w.Int(value.as_int());
      return;
    case CellValue::Kind::kDouble:
      w.Double(value.as_double());
      return;
    case CellValue::Kind::kBigInt:
      w.Raw(value.text());
      return;
    case CellValue::Kind::kText:
      w.String(value.text());
      return;
    case CellValue::Kind::kNone:
      w.String("None");
      return;
    case CellValue::Kind::kUnknown:
      w.String("N/A");
      return;
  }
}

void WriteLeaves(json::Writer& w, const Part& part, const EntryDifference& entry, State state) {
  w.StartObject();
  for (size_t i = entry.first; i < entry.last; ++i) {
    const Leaf& leaf = *part.comparison->rows[i].target;
    if (leaf.state != state) continue;
    w.Key(leaf.name).StartObject();
    if (part.comparison->mode == compare::Mode::kMd5) {
      w.Key("NPU MD5").String(leaf.md5);
    } else {
      w.Key("NPU max");
      WriteValue(w, leaf.max);
      w.Key("NPU min");
      WriteValue(w, leaf.min);
      w.Key("NPU mean");
      WriteValue(w, leaf.mean);
      w.Key("NPU l2norm");
      WriteValue(w, leaf.norm);
    }
    w.Key("NPU P2POp peer").String(OrNone(leaf.more->p2p_peer));
    w.EndObject();
  }
  w.EndObject();
}

void WriteFound(json::Writer& w, const Part& part, const EntryDifference& entry) {
  w.StartObject();
  w.Key("op_name").String(entry.name);
  w.Key("data_info").StartObject();
  w.Key("input");
  WriteLeaves(w, part, entry, State::kInput);
  w.Key("output");
  WriteLeaves(w, part, entry, State::kOutput);
  w.EndObject();
  w.Key("stack_info");
  WriteLines(w, part.comparison->Stack(*part.comparison->rows[entry.first].target));
  w.EndObject();
}

// The columns of the report but those of the rules, which do not speak here, and stacks.
bool IsFigure(const std::string& column) {
  return column != "Result" && column != "Accuracy Reached or Not" && column != "Err_message" &&
         column != "NPU_Stack_Info";
}

// A line per row of the calls of one rank.
Status WriteRankLines(const Part& part, compare::Face face, JsonLines& out) {
  CompareTable table(*part.comparison, face);
  uint64_t number = 0;
  for (const EntryDifference& entry : part.entries) {
    if (!IsCall(entry.name)) continue;
    for (size_t i = entry.first; i < entry.last; ++i) {
      const auto cells = table.Cells(i);
      std::string text;
      json::Writer w(text);
      w.StartObject();
      w.Key("step").String(part.job.step);
      w.Key("rank").String(part.job.rank);
      w.Key("row").Uint(number++);
      w.Key("entry").String(entry.name);
      w.Key("state").String(StateName(part.comparison->rows[i].target->state));
      w.Key("is_same").Bool(entry.same);
      w.Key("compared").Bool(entry.compared);
      w.Key("reason").String(entry.same ? "" : entry.reason);
      for (size_t c = 0; c < cells.size(); ++c) {
        if (!IsFigure(table.columns()[c])) continue;
        w.Key(table.columns()[c]);
        WriteJsonCell(w, cells[c], true);
      }
      w.EndObject();
      MSPROBE_TRY(out.Write(text + "\n"));
    }
  }
  return {};
}

Status WriteLines(const CompareOptions& options, const std::vector<Part>& parts, JsonLines& out) {
  if (!out.wanted()) return {};
  for (const Part& part : parts) {
    if (part.comparison && !part.error) MSPROBE_TRY(WriteRankLines(part, options.face, out));
  }
  return out.Commit();
}

compare::RankTrace TraceOf(const Part& part, compare::Face face) {
  if (part.error) return {};
  if (!part.remote) return compare::TraceOf(*part.comparison, part.entries, part.rank, face);
  compare::RankTrace out;
  out.rank = part.rank;
  for (const Candidate& c : part.remote->candidates) {
    out.entries.push_back({c.name, c.bad, c.communication, c.comm});
  }
  return out;
}

// An entry as it stands in the report of the search, inside the list of its rank.
std::string FoundText(const Part& part, const EntryDifference& entry) {
  std::string text;
  json::Writer w(text, 2);
  w.StartObject().Key("").StartArray();
  WriteFound(w, part, entry);
  w.EndArray().EndObject();
  const size_t head = std::string_view("{\n  \"\": [\n").size();
  const size_t tail = std::string_view("\n  ]\n}").size();
  return text.substr(head, text.size() - head - tail);
}

// Parts [first, last) are the ranks of one step.
Status SearchStep(const CompareOptions& options, const std::vector<Part>& parts, size_t first,
                  size_t last, AnalysisRun& run) {
  std::vector<compare::RankTrace> traces;
  for (size_t i = first; i < last; ++i) traces.push_back(TraceOf(parts[i], options.face));
  const compare::FirstEntries found = compare::FindFirstEntries(traces);
  if (found.places.empty()) return {};
  std::string text = "{";
  const std::string& step = parts[first].job.step;
  for (size_t i = 0; i < found.places.size();) {
    const size_t rank = found.places[i].rank;
    const Part& part = parts[first + rank];
    text += fmt::format("{}\n  \"rank_{}\": [", i == 0 ? "" : ",", part.rank);
    for (bool next = false; i < found.places.size() && found.places[i].rank == rank; ++i) {
      text += next ? ",\n" : "\n";
      next = true;
      const size_t entry = found.places[i].entry;
      if (part.remote) {
        const Candidate& c = part.remote->candidates[entry];
        text += c.found;
        run.first.push_back({step, part.rank, c.name, c.reason});
      } else {
        const EntryDifference& e = part.entries[entry];
        text += FoundText(part, e);
        run.first.push_back({step, part.rank, std::string(e.name), e.reason});
      }
    }
    text += "\n  ]";
  }
  text += "\n}";
  std::string path =
      FreeNanoPath(options.output_dir, "diff_analyze_" + (step.empty() ? step : step + "_"));
  MSPROBE_TRY(WriteTextFile(path, text));
  run.reports.push_back(std::move(path));
  return {};
}

std::string ReportPattern(const RankJob& job) {
  const std::string rank =
      job.rank.starts_with("rank") ? job.rank : (job.rank.empty() ? "rank" : "rank_" + job.rank);
  return fmt::format("compare_result_{}{}{}_{{ts}}.json", job.step, job.step.empty() ? "" : "_",
                     rank);
}

std::string StampFor(const std::string& dir, const std::vector<Part>& parts, int64_t start) {
  for (int64_t stamp = start;;) {
    int64_t next = stamp;
    for (const Part& part : parts) next = FreeTimestamp(dir, {ReportPattern(part.job)}, next);
    if (next == stamp) return LocalTimestamp(stamp);
    stamp = next;
  }
}

void NameReports(const std::string& dir, int64_t start, std::vector<Part>& parts) {
  const std::string stamp = StampFor(dir, parts, start);
  for (Part& part : parts) {
    std::string name = ReportPattern(part.job);
    name.replace(name.find("{ts}"), 4, stamp);
    part.report = JoinPath(dir, name);
  }
}

// Two files: the rank is that of their folder, if it is named so.
void NameRank(Part& part) {
  if (part.job.rank.empty()) {
    const std::string folder = DirName(part.job.target_json);
    const std::string_view name = BaseName(folder);
    if (name.starts_with("rank") && name.size() > 4 && RankNumber(name) >= 0) {
      part.job.rank = std::string(name);
    }
  }
  part.rank = RankNumber(part.job.rank);
}

Status RunPart(const CompareOptions& options, const compare::Options& engine, Part& part,
               LogSink& log, ProgressSink& progress, const CancelToken* cancel) {
  compare::Input input;
  input.target_json = part.job.target_json;
  input.golden_json = part.job.golden_json;
  std::string stack = JoinPath(DirName(part.job.target_json), "stack.json");
  if (PathExists(stack)) input.target_stack = std::move(stack);
  MSPROBE_ASSIGN(const compare::Postprocessed products,
                 Postprocess(options, part.job, options.output_dir, log));
  input.target_files = products.target_files();
  input.golden_files = products.golden_files();
  MSPROBE_ASSIGN(Comparison result, compare::CompareRank(input, engine, log, progress, cancel));
  if (result.interrupted) return Error(ErrorCode::kCancelled, "interrupted");
  part.comparison = std::make_shared<const Comparison>(std::move(result));
  part.entries = compare::FindDifferences(*part.comparison);
  return WriteRankReport(part, options.face, cancel);
}

AnalysisRank Describe(const Part& part) {
  AnalysisRank out;
  out.step = part.job.step;
  out.rank = part.job.rank;
  out.path = part.job.target_json;
  if (part.error) {
    out.problem = part.error->ToString();
    return out;
  }
  out.report = part.report;
  if (part.remote) {
    AnalysisRank known = part.remote->rank;
    known.report = part.report;
    return known;
  }
  out.entries = part.entries.size();
  for (const EntryDifference& entry : part.entries) {
    out.not_compared += !entry.compared;
    if (entry.same) continue;
    ++out.bad;
    if (out.sources.size() < kMaxNames) out.sources.emplace_back(entry.name);
  }
  return out;
}

// ---- on an engine

// Entries that are neither communication nor the first bad one behind one decide nothing.
std::vector<Candidate> CandidatesOf(const Part& part, compare::Face face) {
  const compare::RankTrace trace =
      compare::TraceOf(*part.comparison, part.entries, part.rank, face);
  std::vector<Candidate> out;
  bool waiting = true;
  for (size_t i = 0; i < trace.entries.size(); ++i) {
    const compare::TraceEntry& t = trace.entries[i];
    if (!t.communication && !(t.bad && waiting)) continue;
    waiting = t.communication;
    Candidate c = {std::string(t.name), t.bad, t.communication, t.comm, {}, {}};
    if (t.bad) {
      c.reason = part.entries[i].reason;
      c.found = FoundText(part, part.entries[i]);
    }
    out.push_back(std::move(c));
  }
  return out;
}

// Saves of single values (debug.json) have no calls to search.
Result<std::vector<Part>> PlanParts(const CompareOptions& options, AnalysisRun& run, LogSink& log) {
  MSPROBE_ASSIGN(ComparePlan plan, PlanCompare(options.target, options.golden,
                                               {options.rank_ids, options.step_ids}, log));
  for (const MissingPart& m : plan.missing) {
    AnalysisRank rank;
    rank.step = m.step;
    rank.rank = m.rank;
    rank.problem = m.reason;
    log.Warning(fmt::format("{}{}{}: not compared: {}", m.step,
                            m.step.empty() || m.rank.empty() ? "" : " ", m.rank, m.reason));
    run.ranks.push_back(std::move(rank));
    run.partial = true;
  }
  std::vector<Part> parts;
  for (RankJob& job : plan.jobs) {
    if (BaseName(job.target_json) == "debug.json") continue;
    Part part;
    part.job = std::move(job);
    NameRank(part);
    parts.push_back(std::move(part));
  }
  if (!parts.empty()) return parts;
  return Error(ErrorCode::kUnsupported, "only debug.json, which holds no calls to search")
      .At(options.target);
}

// All ranks of a step together.
Status SearchSteps(const CompareOptions& options, const std::vector<Part>& parts,
                   AnalysisRun& run) {
  for (size_t first = 0; first < parts.size();) {
    size_t last = first;
    while (last < parts.size() && parts[last].job.step == parts[first].job.step) ++last;
    MSPROBE_TRY(SearchStep(options, parts, first, last, run));
    first = last;
  }
  return {};
}

}  // namespace

Result<AnalysisRun> AnalyzeDifferences(const CompareOptions& options, LogSink& outer_log,
                                       ProgressSink& progress, const CancelToken* cancel) {
  AnalysisRun run;
  run.command = "compare";
  run.started = UnixSeconds();
  const double begin = MonotonicSeconds();
  MessageLog log(outer_log);
  MSPROBE_ASSIGN(std::vector<Part> parts, PlanParts(options, run, log));
  MSPROBE_ASSIGN(const OutputFolder folder, OutputFolder::Make(options.output_dir));
  MSPROBE_ASSIGN(JsonLines json, JsonLines::Create(options.json_path));
  NameReports(options.output_dir, run.started, parts);
  RankProgress ranks(parts.size(), progress);
  CorePool cores((options.workers != 0 ? options.workers : AvailableCores()) - 1);
  const compare::Options engine = EngineOptions(options, cores);
  if (options.engine != nullptr) {
    MSPROBE_TRY(FindDifferencesWithEngine(options, parts, json, log, cancel));
  }
  ParallelFor(
      options.engine != nullptr ? 0 : parts.size(), cores,
      [&](size_t i) {
        const Status done = RunPart(options, engine, parts[i], log, ranks.Of(i), cancel);
        ranks.Done(i);
        if (done.ok()) return;
        parts[i].error = done.error();
        if (parts.size() > 1 && done.error().code != ErrorCode::kCancelled) {
          log.Error(fmt::format("{}: not compared: {}", RankLabel(parts[i].job),
                                done.error().ToString()));
        }
      },
      cancel);
  if (cancel != nullptr && cancel->cancelled()) {
    run.interrupted = true;
    for (Part& part : parts) {
      if (!part.comparison && !part.remote && !part.error)
        part.error = Error(ErrorCode::kCancelled, "interrupted");
    }
  }
  for (const Part& part : parts) {
    run.ranks.push_back(Describe(part));
    run.partial = run.partial || part.error.has_value();
  }
  if (std::all_of(parts.begin(), parts.end(), [](const Part& p) { return p.error.has_value(); })) {
    const Error& cause = *parts.front().error;
    if (parts.size() == 1 || run.interrupted) return cause;
    return Error(cause.code,
                 fmt::format("none of the {} pairs of ranks could be compared", parts.size()))
        .At(options.target);
  }
  MSPROBE_TRY(SearchSteps(options, parts, run));
  if (!run.interrupted) MSPROBE_TRY(WriteLines(options, parts, json));
  run.messages = log.Take();
  run.seconds = MonotonicSeconds() - begin;
  MSPROBE_TRY(WriteAnalysisSummary(options.output_dir, options.echo,
                                   {options.target, options.golden}, run));
  return run;
}

Status RunDifferenceItem(CompareOptions options, std::string_view payload,
                         const ItemContext& context) {
  const auto job = Unpacked<RankJob>(payload);
  if (!job) return Error(ErrorCode::kMalformed, "no work item of this version");
  options.engine = nullptr;
  options.output_dir = context.scratch;
  Part part;
  part.job = *job;
  part.rank = RankNumber(part.job.rank);
  part.report = JoinPath(context.scratch, "report.json");
  MessageList log;
  CorePool cores(0);
  PartHead head;
  const Status done =
      RunPart(options, EngineOptions(options, cores), part, log, NullProgress(), nullptr);
  const std::string rows_path = JoinPath(context.scratch, "rows.jsonl");
  std::vector<std::string> paths;
  if (done.ok()) {
    head.rank = Describe(part);
    head.candidates = CandidatesOf(part, options.face);
    paths.push_back(part.report);
    if (!options.json_path.empty()) {
      MSPROBE_ASSIGN(JsonLines lines, JsonLines::Create(rows_path));
      MSPROBE_TRY(WriteRankLines(part, options.face, lines));
      MSPROBE_TRY(lines.Commit());
      paths.push_back(rows_path);
    }
  } else {
    head.error = done.error();
  }
  for (const std::string& path : paths) {
    MSPROBE_ASSIGN(const InputFile file, InputFile::Open(path));
    head.blobs.push_back({path == rows_path ? BlobKind::kRows : BlobKind::kFile, "", file.size()});
  }
  head.messages = log.Take();
  ResultWriter writer(context.emit);
  MSPROBE_TRY(writer.Head(Packed(head)));
  for (const std::string& path : paths) MSPROBE_TRY(writer.File(path));
  return writer.Finish();
}

}  // namespace msprobe::app
