// The use cases that look for the first entry that went wrong over all ranks: NaN and infinity in
// one dump (compare.md 21), differences between two (compare.md 19).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/compare_app.h"
#include "app/engine.h"
#include "base/log.h"
#include "base/result.h"

namespace msprobe::app {

// An entry that brought the fault in.
struct FoundEntry {
  std::string step;  // "step0" in a dump root, else empty
  int64_t rank = 0;
  std::string entry;
  std::string reason;  // one clause with the numbers
};

struct AnalysisRank {
  std::string step;
  std::string rank;  // folder name; empty for two files
  std::string path;
  uint64_t entries = 0;
  uint64_t bad = 0;           // entries that brought a fault in: sources, or entries that differ
  uint64_t not_compared = 0;  // differences only: entries without any compared output
  std::vector<std::string> sources;           // names of those, up to 100
  std::optional<std::string> first_consumer;  // overflow only: first entry with a bad input
  std::string consumer_reason;
  std::string report;   // differences only: the JSON of this rank
  std::string problem;  // why it was left out; empty when it was not
};

struct AnalysisRun {
  std::string command;
  std::vector<AnalysisRank> ranks;
  std::vector<FoundEntry> first;      // what the search over ranks ends with
  std::vector<std::string> reports;   // anomaly_analyze_*.json or diff_analyze_*.json
  std::vector<std::string> messages;  // warnings
  std::string summary_path;
  int64_t started = 0;
  double seconds = 0;
  bool partial = false;
  bool interrupted = false;  // cancelled: what was done before was searched
};

struct OverflowOptions {
  std::string input_dir;  // a step folder, or one rank folder
  std::string output_dir = "./output";
  std::string json_path;  // also every bad call as a line of JSON; "" = no
  std::string command = "overflow_check";
  unsigned workers = 0;
  Engine* engine = nullptr;  // where ranks are read, when not in this process
  std::vector<std::pair<std::string, std::string>> echo;
};

// Writes anomaly_analyze_{nanoseconds}.json when something was found, and a summary with all
// sources and the first consumers of every rank. construct.json and stack.json are used where they
// are there. Errors: kNothingToDo without a rank that can be read.
Result<AnalysisRun> CheckOverflow(const OverflowOptions& options, LogSink& log,
                                  ProgressSink& progress, const CancelToken* cancel);

// Compares as Compare() does, but writes compare_result_rank{n}_{time}.json per rank and
// diff_analyze_{nanoseconds}.json per step with the entries that differ first. Statistics and
// checksums count; of tensor dumps also the figures of the tensors. Errors: those of Compare().
Result<AnalysisRun> AnalyzeDifferences(const CompareOptions& options, LogSink& log,
                                       ProgressSink& progress, const CancelToken* cancel);

// The work of one item of the engine of either, in a worker. Errors: those of `context.emit`;
// kMalformed for a payload of another kind.
Status RunOverflowItem(std::string_view payload, const ItemContext& context);
Status RunDifferenceItem(CompareOptions options, std::string_view payload,
                         const ItemContext& context);

std::string AnalysisAnswer(const AnalysisRun& run);
std::string AnalysisClosingLine(const AnalysisRun& run);

}  // namespace msprobe::app
