// The reports that merge_result reads: which files, and which rows and columns of them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "config/merge_config.h"

namespace msprobe::app {

inline constexpr std::string_view kNameColumn = "NPU Name";
inline constexpr std::string_view kConsistentColumn = "Requires_grad Consistent";
inline constexpr std::string_view kResultColumn = "Result";
inline constexpr std::string_view kBitEqualColumn = "Bit Equal";
inline constexpr std::string_view kAccuracyColumn = "Accuracy Reached or Not";

// The report of one rank.
struct RankFiles {
  std::string label;  // "rank0", "step0 rank0"
  bool csv = false;
  std::vector<std::string> paths;  // parts in order
};

// One report per rank, by step and rank: the newest; a workbook before a csv of the same second.
Result<std::vector<RankFiles>> FindReports(const std::string& dir, LogSink& log);

struct PickedRow {
  std::string name;
  std::vector<std::string> cells;  // of the metrics asked for; "" where the report has none
};

struct RankRows {
  std::string mode;             // tensor, statistics, md5
  std::vector<bool> has;        // metric asked for -> the report has it
  std::vector<PickedRow> rows;  // report order; names that repeat get " (2)", " (3)", …
  std::vector<bool> seen;       // api -> some row belongs to it
};

// The rows of config.apis with the columns of config.metrics. Cells without a figure show what both
// sides recorded. Errors: those of the readers; kMalformed when the columns are not those of a
// report.
Result<RankRows> PickRank(const RankFiles& files, const config::MergeConfig& config);

// The metrics of all modes, and the estimates of sketches.
std::vector<std::string> AllMetrics();

}  // namespace msprobe::app
