// Changes of compare's default rule set (decisions.md 25): `--rules FILE.yaml`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/result.h"

namespace msprobe::config {

// One item of `limits`. Patterns are shell patterns (* ? [) over the whole text; empty: any.
struct RuleChange {
  std::string api;                              // of the API or class: `linear`, `LayerNorm`
  std::string dtype;                            // of the target row: `torch.bfloat16`
  std::string name;                             // of the target row
  std::optional<double> rounding, noise, gain;  // > 0
  std::vector<std::string> off;                 // ids of rules that do not act: R1 … R8, Q1 …
  bool Matches(std::string_view api_name, std::string_view row_dtype,
               std::string_view row_name) const;
};

struct RuleFile {
  std::vector<RuleChange> limits;  // of several that match, the last counts, figure by figure
};

// Unknown keys are warned about, or refused when they are nearly a known one. Errors with line,
// column and key: figures that are not positive numbers, unknown rules, a file without `limits`.
Result<RuleFile> ReadRuleFile(const std::string& path, LogSink& log);

}  // namespace msprobe::config
