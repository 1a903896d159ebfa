// The use case "final verdict of the pre-check": two details files in, two csv files and a summary
// out.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "precheck/precision_compare.h"

namespace msprobe::app {

struct PrecisionOptions {
  std::string npu_csv, gpu_csv;  // accuracy_checking_details files; any generation, either language
  std::string output_dir = "./";  // made when absent
  precheck::Standard standard = precheck::Standard::kNew;
  precheck::Rules rules = precheck::Rules::kDefault;
  precheck::NumberFormat format;
  bool english = false;   // column titles
  std::string json_path;  // also every row of the details as a line of JSON; "" = no
  std::string command;    // for the summary
  std::vector<std::pair<std::string, std::string>> echo;
};

struct StatusCounts {
  uint64_t pass = 0, warning = 0, error = 0, skip = 0, not_run = 0;
  void Add(precheck::Status status);
  void Add(const StatusCounts& other);
  uint64_t total() const { return pass + warning + error + skip; }
};

struct PrecisionRun {
  StatusCounts rows, forward, backward;
  std::string details_path, result_path, summary_path;
  std::vector<std::string> first_errors;  // up to 10 row names with their reason, in file order
  double seconds = 0;
};

// Reads, judges, writes api_precision_compare_details_{ts}.csv, …_result_{ts}.csv and
// api_precision_compare_summary_{ts}.json. Errors: unreadable input or output folder, nothing
// written then.
struct PrecisionSinks {
  LogSink& log;
  ProgressSink& progress;
};
Result<PrecisionRun> ComparePrecision(const PrecisionOptions& options, const PrecisionSinks& sinks);

// Algorithms, steps and limits with their sources, for a person.
std::string PrecheckRulesText(precheck::Standard standard, precheck::Rules rules);

// What a person reads at the end, up to 20 lines, and the closing line of counts.
std::string PrecisionAnswer(const PrecisionRun& run);
std::string PrecisionClosingLine(const PrecisionRun& run);

}  // namespace msprobe::app
