// The use case "put the reports of many ranks side by side" (compare.md 20).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/engine.h"
#include "base/log.h"
#include "base/result.h"
#include "config/merge_config.h"

namespace msprobe::app {

struct MergeOptions {
  std::string input_dir;  // holds compare_result_rank<n>_<time stamp>.xlsx or .csv
  std::string output_dir = "./output";
  config::MergeConfig config;
  // Row order: report order, or by name as the new spelling has it.
  bool sort_names = false;
  std::string json_path;  // also every row of every sheet as a line of JSON; "" = no
  unsigned workers = 0;
  Engine* engine = nullptr;  // where reports are read, when not in this process
  std::vector<std::pair<std::string, std::string>> echo;  // options as given, for the summary
};

// One report that was found.
struct MergedRank {
  std::string label;  // column title: "rank0", "step0 rank0"
  std::vector<std::string> files;
  std::string mode;     // tensor, statistics, md5; empty when it could not be read
  uint64_t rows = 0;    // rows taken
  std::string problem;  // why it was left out; empty when it was not
};

struct MergeRun {
  std::vector<MergedRank> ranks;  // by step and rank
  std::vector<std::string> sheets;
  uint64_t rows = 0;                  // names in the workbook
  std::vector<std::string> worst;     // up to 10 lines "metric: name: rank3 0.9"
  std::vector<std::string> messages;  // warnings
  std::string path, summary_path;
  double seconds = 0;
  bool partial = false;  // some rank was left out
};

// Writes multi_ranks_compare_merge_{time}.xlsx: one sheet per metric with `NPU Name`, a column per
// rank, the rank that is worst and its value. Files of other kinds in the folder are left alone; of
// several reports of one rank the newest counts; workbooks are read whole when their sheets are
// part_0, part_1, …, else their first sheet. Errors: those of the folder; kNothingToDo when fewer
// than two ranks can be read or no row has one of the names.
Result<MergeRun> MergeReports(const MergeOptions& options, LogSink& log, const CancelToken* cancel);

// The work of one item of the engine, in a worker. Errors: those of `context.emit`; kMalformed for
// a payload of another kind.
Status RunMergeItem(const MergeOptions& options, std::string_view payload,
                    const ItemContext& context);

std::string MergeAnswer(const MergeRun& run);
std::string MergeClosingLine(const MergeRun& run);

}  // namespace msprobe::app
