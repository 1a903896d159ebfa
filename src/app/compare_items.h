// A comparison cut into work items for an engine: pairs of ranks, and of large tensor dumps also
// blocks of tensors by bytes.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "app/compare_app.h"
#include "app/compare_html.h"
#include "app/engine.h"
#include "app/json_rows.h"
#include "app/json_turns.h"
#include "app/junit.h"

namespace msprobe::app {

// Outputs that all ranks share.
struct SharedOutputs {
  std::unique_ptr<JsonRows> json;
  std::unique_ptr<JsonTurns> turns;  // of json, for threads of this process
  std::unique_ptr<JunitReport> junit;
  std::unique_ptr<CompareHtml> html;
};

// Messages of one rank say which.
class RankLog final : public LogSink {
 public:
  RankLog(LogSink& inner, std::string label) : inner_(inner), label_(std::move(label)) {}
  void Log(LogLevel level, std::string_view message) override {
    if (label_.empty()) return inner_.Log(level, message);
    inner_.Log(level, "[" + label_ + "] " + std::string(message));
  }

 private:
  LogSink& inner_;
  std::string label_;
};

// Compares the pairs of `run` (each has its job) with options.engine. Reports, rows of `shared` and
// messages come in the order of the pairs and are written here, by nobody else. Memory does not
// grow with the rows, but for those of --junit. A pair whose worker dies each time is tried in
// parts, to find the tensors that are to blame; the rows of those are unreadable with that reason.
Status CompareWithEngine(const CompareOptions& options, const std::string& stamp,
                         const SharedOutputs& shared, CompareRun& run, LogSink& log,
                         const CancelToken* cancel);

// The work of one item in a worker. `options` are those of the command; their folder of reports
// and their JSON files are not touched. What is wrong with a pair is part of its result. Errors:
// those of `context.emit`; kMalformed for a payload that no CompareWithEngine made.
Status RunCompareItem(CompareOptions options, std::string_view payload, const ItemContext& context);

// In compare_app.cc: upstream's old release keeps reports from other users (compare.md 14.1),
// beyond what the umask does; the new one leaves that to the umask. Errors: those of stat and
// chmod.
Status FitMode(const std::string& path, compare::Face face);

// In compare_app.cc: compares one pair, writes its reports to options.output_dir.
struct PairRun {
  const CompareOptions& options;
  const compare::Options& engine;
  const std::string& stamp;
  LogSink& log;
  ProgressSink& progress;
  const CancelToken* cancel;
};
Status RunPair(const PairRun& run, RankOutcome& out);
// The same: the search for the culprit in a pair by itself.
Status SearchPair(const CompareOptions& options, RankOutcome& out, LogSink& log);

}  // namespace msprobe::app
