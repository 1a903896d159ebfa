// config.json of PrecisionDebugger (dump.md 3), both generations.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"

namespace msprobe::config {

enum class Task : uint8_t { kStatistics, kTensor, kStructure, kNanCheck };
enum class Level : uint8_t { kL0, kL1, kMix, kDebug };
enum class SummaryMode : uint8_t { kStatistics, kMd5, kXor, kHash64 };
enum class RiskLevel : uint8_t { kCore, kFocus, kAll, kEvery };
enum class Overwrite : uint8_t { kKeep, kReplace, kRefuse };

std::string_view TaskName(Task t);
std::string_view LevelName(Level l);
std::string_view SummaryModeName(SummaryMode m);

struct CollectConfig {
  std::string path;                     // of the file; empty when built from arguments only
  Task task = Task::kStatistics;
  Level level = Level::kL1;
  std::string dump_path;
  std::vector<int64_t> ranks, steps;    // sorted, unique; empty = all
  bool async_dump = false;
  bool extra_info = true;
  std::optional<bool> dump_enable;
  RiskLevel risk_level = RiskLevel::kFocus;
  // task section
  std::vector<std::string> scope, list, tensor_list;
  bool forward = true, backward = true, input = true, output = true;  // data_mode
  bool data_mode_all = true;
  SummaryMode summary_mode = SummaryMode::kStatistics;
  // ours
  int64_t buffer_size = 4 << 20;        // bytes, 64 KiB … 1 GiB
  Overwrite overwrite = Overwrite::kKeep;
  bool strict = false;
};

// Arguments of the constructor win over the file (dump.md 2.1).
struct CollectArguments {
  std::optional<std::string> config_path, task, dump_path, level;
  std::optional<std::string> steps_json;  // the `step` argument as JSON text
};

// All problems at once, up to 20 (decisions.md 2): the first is the error, the rest are in its message, one per line.
// Without config_path: built-in defaults. Unknown keys: decisions.md 12.
Result<CollectConfig> ReadCollectConfig(const CollectArguments& arguments, LogSink& log);

}  // namespace msprobe::config
