#include "app/precision_app.h"

#include <fmt/format.h>

#include "base/file.h"
#include "base/text.h"
#include "base/time.h"
#include "json/json.h"
#include "precheck/explain.h"

namespace msprobe::app {
namespace {

using precheck::Status;

constexpr size_t kFirstErrors = 10;

// `head`, then what `append` makes of each item, a piece at a time.
template <class Items, class Append>
msprobe::Status WriteRecords(const std::string& path, std::string head, const Items& items,
                             Append append) {
  constexpr size_t kPiece = 1 << 18;
  MSPROBE_ASSIGN(AtomicFile file, AtomicFile::Create(path));
  std::string text = std::move(head);
  for (const auto& item : items) {
    append(text, item);
    if (text.size() < kPiece) continue;
    MSPROBE_TRY(file.Write(text));
    text.clear();
  }
  MSPROBE_TRY(file.Write(text));
  return file.Commit();
}

msprobe::Status WriteText(const std::string& path, std::string_view text) {
  MSPROBE_ASSIGN(AtomicFile file, AtomicFile::Create(path));
  MSPROBE_TRY(file.Write(text));
  return file.Commit();
}

void WriteCounts(json::Writer& w, const StatusCounts& c) {
  w.StartObject();
  w.Key("pass").Uint(c.pass);
  w.Key("warning").Uint(c.warning);
  w.Key("error").Uint(c.error);
  w.Key("skip").Uint(c.skip);
  w.Key("total").Uint(c.total());
  w.EndObject();
}

std::string Summary(const PrecisionOptions& options, const PrecisionRun& run, int64_t started) {
  std::string text;
  json::Writer w(text, 1);
  w.StartObject();
  w.Key("format_version").Int(1);
  w.Key("tool_version").String(MSPROBE_VERSION);
  w.Key("command").String(options.command);
  w.Key("options").StartObject();
  for (const auto& [name, value] : options.echo) w.Key(name).String(value);
  w.EndObject();
  w.Key("inputs").StartArray().String(options.npu_csv).String(options.gpu_csv).EndArray();
  w.Key("started").String(IsoUtc(started));
  w.Key("seconds").Double(run.seconds);
  w.Key("standard").String(options.standard == precheck::Standard::kOld ? "old" : "new");
  w.Key("rules").String(options.rules == precheck::Rules::kBase ? "base" : "default");
  w.Key("counts").StartObject();
  w.Key("rows");
  WriteCounts(w, run.rows);
  w.Key("forward");
  WriteCounts(w, run.forward);
  w.Key("backward");
  WriteCounts(w, run.backward);
  w.EndObject();
  w.Key("first_errors").StartArray();
  for (const std::string& e : run.first_errors) w.String(e);
  w.EndArray();
  w.Key("reports").StartArray().String(run.details_path).String(run.result_path).EndArray();
  w.EndObject();
  return text;
}

std::string FirstLine(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

}  // namespace

void StatusCounts::Add(precheck::Status status) {
  switch (status) {
    case Status::kPass:
      ++pass;
      return;
    case Status::kWarning:
      ++warning;
      return;
    case Status::kError:
      ++error;
      return;
    case Status::kSkip:
      ++skip;
      return;
    case Status::kNotRun:
      ++not_run;
      return;
  }
}

void StatusCounts::Add(const StatusCounts& other) {
  pass += other.pass;
  warning += other.warning;
  error += other.error;
  skip += other.skip;
  not_run += other.not_run;
}

Result<PrecisionRun> ComparePrecision(const PrecisionOptions& options, LogSink& log) {
  const double begin = MonotonicSeconds();
  const int64_t started = UnixSeconds();
  MSPROBE_ASSIGN(const precheck::DetailsTable npu, precheck::ReadDetails(options.npu_csv));
  MSPROBE_ASSIGN(const precheck::DetailsTable gpu, precheck::ReadDetails(options.gpu_csv));
  MSPROBE_TRY(CreateDirectories(options.output_dir));
  if (npu.rows.empty()) log.Warning(fmt::format("{} has no rows", options.npu_csv));
  if (gpu.rows.empty()) log.Warning(fmt::format("{} has no rows", options.gpu_csv));
  const precheck::PrecisionComparison result =
      precheck::JudgeDetails(npu, gpu, options.standard, options.rules);
  if (result.other_inputs > 0) {
    log.Warning(fmt::format(
        "{} of {} outputs were computed from other inputs in the two runs, {} first: their "
        "errors are not comparable; replay the same dump with the same seed on both",
        result.other_inputs, result.rows.size(), result.first_other_inputs));
  }

  PrecisionRun run;
  for (const precheck::JudgedRow& row : result.rows) {
    run.rows.Add(row.status);
    if (row.status == Status::kError && run.first_errors.size() < kFirstErrors)
      run.first_errors.push_back(fmt::format("{}: {}", row.name, FirstLine(row.message)));
  }
  for (const precheck::ApiVerdict& api : result.apis) {
    run.forward.Add(api.forward);
    run.backward.Add(api.backward);
  }
  const std::string stamp = LocalTimestamp(FreeTimestamp(
      options.output_dir,
      {"api_precision_compare_details_{ts}.csv", "api_precision_compare_result_{ts}.csv",
       "api_precision_compare_summary_{ts}.json"},
      started));
  const auto path = [&](std::string_view kind, std::string_view extension) {
    return JoinPath(options.output_dir,
                    fmt::format("api_precision_compare_{}_{}.{}", kind, stamp, extension));
  };
  run.details_path = path("details", "csv");
  run.result_path = path("result", "csv");
  run.summary_path = path("summary", "json");
  MSPROBE_TRY(WriteRecords(run.details_path, precheck::PrecisionDetailsHead(options.english),
                           result.rows, [&](std::string& out, const precheck::JudgedRow& row) {
                             precheck::AppendPrecisionRow(out, row, options.format);
                           }));
  MSPROBE_TRY(WriteRecords(run.result_path, precheck::PrecisionResultHead(), result.apis,
                           precheck::AppendVerdict));
  run.seconds = MonotonicSeconds() - begin;
  MSPROBE_TRY(WriteText(run.summary_path, Summary(options, run, started)));
  return run;
}

std::string PrecheckRulesText(precheck::Standard standard, precheck::Rules rules) {
  return precheck::ExplainRules(standard, rules);
}

std::string PrecisionAnswer(const PrecisionRun& run) {
  std::string out;
  if (run.first_errors.empty()) {
    out += "No operator was found wrong.\n";
  } else {
    out += fmt::format("{} outputs are wrong; the first:\n", run.rows.error);
    for (const std::string& e : run.first_errors) out += "  " + VisibleText(e) + "\n";
  }
  if (run.rows.skip > 0) {
    out += fmt::format(
        "{} of {} outputs were not judged; the Message column of the details says why.\n",
        run.rows.skip, run.rows.total());
  }
  out += fmt::format("Details: {}\nResult:  {}\n", run.details_path, run.result_path);
  return out;
}

std::string PrecisionClosingLine(const PrecisionRun& run) {
  const auto counts = [](const StatusCounts& c) {
    return fmt::format("pass {}, warning {}, error {}, skip {}, total {}", c.pass, c.warning,
                       c.error, c.skip, c.total());
  };
  return fmt::format("forward: {}; backward: {}; path {}", counts(run.forward),
                     counts(run.backward), run.result_path);
}

}  // namespace msprobe::app
