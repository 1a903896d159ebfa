// Which rows and figures merge_result puts side by side (compare.md 20).
#pragma once

#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"

namespace msprobe::config {

struct MergeConfig {
  std::vector<std::string> apis;     // `api`: beginnings of row names, or patterns with * ? [
  std::vector<std::string> metrics;  // `compare_index`; empty: those of the report's mode
};

// Unknown keys are warned about, or refused when they are nearly a known one. Errors with line,
// column and key: `api` missing or empty, values that are not texts.
Result<MergeConfig> ReadMergeConfig(const std::string& path, LogSink& log);

}  // namespace msprobe::config
