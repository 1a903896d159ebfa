// compare.json (compare.md 1.2) and the YAML files of compare.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/result.h"

namespace msprobe::config {

struct CompareInput {
  std::string target_path;  // npu_path
  std::string golden_path;  // bench_path or gpu_path (decisions.md 52)
  std::optional<std::string> stack_path;
  std::optional<bool> print_row_log;        // is_print_compare_log
  std::vector<int64_t> rank_ids, step_ids;  // rank_id, step_id: only these; empty: all
};
// Every error with file, line, column, key path, value and what was expected.
Result<CompareInput> ReadCompareJson(const std::string& path, LogSink& log);

// Ordered pairs of a YAML mapping of text to text (-dm, -cm).
using NameMap = std::vector<std::pair<std::string, std::string>>;
Result<NameMap> ReadNameMapYaml(const std::string& path);

}  // namespace msprobe::config
