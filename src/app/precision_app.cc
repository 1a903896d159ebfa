#include "app/precision_app.h"

#include <fmt/format.h>

#include <optional>

#include "app/json_lines.h"
#include "base/file.h"
#include "base/text.h"
#include "base/time.h"
#include "json/json.h"
#include "precheck/explain.h"

namespace msprobe::app {
namespace {

using precheck::Status;

constexpr size_t kFirstErrors = 10;

// A file that grows by records and appears when it is complete.
class RecordFile {
 public:
  static Result<RecordFile> Create(const std::string& path, std::string head) {
    MSPROBE_ASSIGN(AtomicFile file, AtomicFile::Create(path));
    return RecordFile(std::move(file), std::move(head));
  }
  std::string& text() { return text_; }  // append here, then call Appended
  msprobe::Status Appended() {
    constexpr size_t kPiece = 1 << 18;
    return text_.size() < kPiece ? msprobe::Status() : Flush();
  }
  msprobe::Status Commit() {
    MSPROBE_TRY(Flush());
    return file_.Commit();
  }

 private:
  RecordFile(AtomicFile file, std::string head) : file_(std::move(file)), text_(std::move(head)) {}
  msprobe::Status Flush() {
    const msprobe::Status status = file_.Write(text_);
    text_.clear();
    return status;
  }
  AtomicFile file_;
  std::string text_;
};

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

namespace {

// The details of the verdict. Folder and file are made when the first row comes, so that inputs
// which are refused leave nothing behind.
class DetailsFile {
 public:
  DetailsFile(const PrecisionOptions& options, int64_t started, PrecisionRun& run)
      : options_(options), started_(started), run_(run) {}

  msprobe::Status Append(const precheck::JudgedRow& row) {
    MSPROBE_TRY(Open());
    precheck::AppendPrecisionRow(file_->text(), row, options_.format);
    return file_->Appended();
  }
  msprobe::Status Open() {
    if (file_.has_value()) return {};
    MSPROBE_TRY(CreateDirectories(options_.output_dir));
    const std::string stamp = LocalTimestamp(FreeTimestamp(
        options_.output_dir,
        {"api_precision_compare_details_{ts}.csv", "api_precision_compare_result_{ts}.csv",
         "api_precision_compare_summary_{ts}.json"},
        started_));
    const auto path = [&](std::string_view kind, std::string_view extension) {
      return JoinPath(options_.output_dir,
                      fmt::format("api_precision_compare_{}_{}.{}", kind, stamp, extension));
    };
    run_.details_path = path("details", "csv");
    run_.result_path = path("result", "csv");
    run_.summary_path = path("summary", "json");
    MSPROBE_ASSIGN(file_, RecordFile::Create(run_.details_path,
                                             precheck::PrecisionDetailsHead(options_.english)));
    return {};
  }
  msprobe::Status Commit() { return file_->Commit(); }

 private:
  const PrecisionOptions& options_;
  int64_t started_;
  PrecisionRun& run_;
  std::optional<RecordFile> file_;
};

// Both files into `judge`; every judged row is counted and appended to `details`.
msprobe::Status JudgeFiles(const PrecisionOptions& options, const PrecisionSinks& sinks,
                           precheck::FinalJudge& judge, DetailsFile& details, PrecisionRun& run) {
  using Row = precheck::DetailsTable::Row;
  const auto progress = [&](std::string_view stage) {
    return [&sinks, stage](uint64_t done, uint64_t total) {
      sinks.progress.Update(stage, done >> 20, total >> 20);
    };
  };
  uint64_t npu_rows = 0;
  uint64_t gpu_rows = 0;
  const auto add = [&](const Row& row) {
    ++gpu_rows;
    judge.AddGpu(row);
    return msprobe::Status();
  };
  MSPROBE_TRY(precheck::ReadDetailsRows(options.gpu_csv, add, progress("reading, MiB")));
  const auto write = [&](const precheck::JudgedRow& row) {
    run.rows.Add(row.status);
    if (row.status == Status::kError && run.first_errors.size() < kFirstErrors)
      run.first_errors.push_back(fmt::format("{}: {}", row.name, FirstLine(row.message)));
    return details.Append(row);
  };
  const auto judge_row = [&](const Row& row) {
    ++npu_rows;
    return judge.JudgeNpu(row, write);
  };
  MSPROBE_TRY(precheck::ReadDetailsRows(options.npu_csv, judge_row, progress("judging, MiB")));
  MSPROBE_TRY(judge.Finish(write));
  MSPROBE_TRY(details.Open());
  if (npu_rows == 0) sinks.log.Warning(fmt::format("{} has no rows", options.npu_csv));
  if (gpu_rows == 0) sinks.log.Warning(fmt::format("{} has no rows", options.gpu_csv));
  if (judge.other_inputs() > 0) {
    sinks.log.Warning(fmt::format(
        "{} of {} outputs were computed from other inputs in the two runs, {} first: their "
        "errors are not comparable; replay the same dump with the same seed on both",
        judge.other_inputs(), run.rows.total(), judge.first_other_inputs()));
  }
  return {};
}

}  // namespace

Result<PrecisionRun> ComparePrecision(const PrecisionOptions& options,
                                      const PrecisionSinks& sinks) {
  const double begin = MonotonicSeconds();
  const int64_t started = UnixSeconds();
  PrecisionRun run;
  precheck::FinalJudge judge(options.standard, options.rules);
  DetailsFile details(options, started, run);
  MSPROBE_ASSIGN(JsonLines json, JsonLines::Create(options.json_path));
  MSPROBE_TRY(JudgeFiles(options, sinks, judge, details, run));
  MSPROBE_ASSIGN(RecordFile results,
                 RecordFile::Create(run.result_path, precheck::PrecisionResultHead()));
  for (const precheck::ApiVerdict& api : judge.Apis()) {
    run.forward.Add(api.forward);
    run.backward.Add(api.backward);
    precheck::AppendVerdict(results.text(), api);
    MSPROBE_TRY(results.Appended());
  }
  MSPROBE_TRY(details.Commit());
  MSPROBE_TRY(results.Commit());
  MSPROBE_TRY(AddCsvRows(run.details_path, precheck::PrecisionDetailsTitles(), json));
  MSPROBE_TRY(json.Commit());
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
