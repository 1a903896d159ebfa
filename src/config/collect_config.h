// config.json of PrecisionDebugger (dump.md 3), both generations.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/result.h"

namespace msprobe::config {

enum class Task : uint8_t { kStatistics, kTensor, kStructure, kNanCheck, kOverflowCheck };
enum class Level : uint8_t { kL0, kL1, kMix, kDebug };
enum class SummaryMode : uint8_t { kStatistics, kMd5, kXor, kHash64 };
enum class RiskLevel : uint8_t { kCore, kFocus, kAll, kEvery };
enum class Overwrite : uint8_t { kKeep, kReplace, kRefuse };
// Extra members of entries for fault-finding: none; what costs next to nothing; also what reads all
// memory once more.
enum class Evidence : uint8_t { kNone, kLight, kFull };
// Whose gradients the backward of an API holds: of the graph node that made the first output
// (dump.md 6.6), or one per argument and per output.
enum class BackwardLayout : uint8_t { kNode, kArguments };
// Where statistics of accelerator tensors are computed: there, or here from a copy. kForce: there
// also for tensors in host memory (for tests).
enum class DeviceStatistics : uint8_t { kDevice, kHost, kForce };

std::string_view TaskName(Task t);
std::string_view LevelName(Level l);
std::string_view SummaryModeName(SummaryMode m);
std::string_view RiskLevelName(RiskLevel r);
std::string_view OverwriteName(Overwrite o);
std::string_view EvidenceName(Evidence e);

// Restricts one dimension of every tensor that has it (dump.md 9.5).
struct SliceItem {
  int64_t dim = 0;              // >= 0
  int64_t begin = 0;            // negative: from the end
  std::optional<int64_t> end;   // exclusive; absent: to the end
  std::optional<int64_t> size;  // applies only to dimensions of this length
  bool operator==(const SliceItem&) const = default;
};

struct CollectConfig {
  std::string path;  // of the file; empty when built from arguments only
  Task task = Task::kStatistics;
  Level level = Level::kL1;
  std::string dump_path;
  std::vector<int64_t> ranks, steps;  // sorted, unique; empty = all
  bool async_dump = false;
  bool extra_info = true;
  std::optional<bool> dump_enable;
  RiskLevel risk_level = RiskLevel::kFocus;
  bool high_precision =
      false;  // precision "high"; statistics are in double either way (decisions.md 22)
  std::optional<std::vector<std::string>> custom_op_namespaces;  // absent: the default ones
  // task section
  std::vector<std::string> scope, list, tensor_list;                  // scope: empty or two names
  bool forward = true, backward = true, input = true, output = true;  // data_mode
  bool data_mode_all = true;
  SummaryMode summary_mode = SummaryMode::kStatistics;
  // summary_mode "sketch" (statistics, hash64 and sketch) or a list of it and a checksum.
  bool sketch = false;
  int64_t sketch_size = 256, sketch_seed = 1;  // 64 … 4096, a multiple of 64; >= 0
  std::vector<SliceItem> slice;
  std::optional<std::string> request_id;
  std::optional<std::string>
      bench_path;         // of an md5 dump to compare with while collecting (dump.md 19.2)
  int64_t diff_nums = 1;  // stop after that many differences; -1: never
  int64_t overflow_nums =
      -1;  // of the checks: stop after that many; -1: never (1 when the task is "overflow_check")
  // ours
  int64_t buffer_size = 4 << 20;  // bytes, 64 KiB … 1 GiB
  // Bytes of tensor copies that wait to be written, 1 MiB … 1 TiB; 0: 128 MiB, or as many as there
  // are with async_dump.
  int64_t memory_limit = 0;
  Overwrite overwrite = Overwrite::kKeep;
  bool strict = false;
  bool compiled_as_leaf = false;  // compiled "leaf" instead of "eager" (decisions.md 54)
  bool reuse_statistics = false;  // reuse "version" instead of "off" (decisions.md 55)
  Evidence evidence = Evidence::kLight;
  BackwardLayout backward_layout = BackwardLayout::kNode;
  DeviceStatistics device_statistics = DeviceStatistics::kDevice;
  // api_list: functions to record beside the built-in ones, by module; names of APIs that are not
  // to be recorded ("Functional.relu", or "relu" of any prefix).
  std::vector<std::pair<std::string, std::vector<std::string>>> added_apis;
  std::vector<std::string> removed_apis;
  // Notes on keys that nobody knows, to be repeated at stop (decisions.md 12).
  std::vector<std::string> unknown_keys;
};

// Arguments of the constructor win over the file (dump.md 2.1). Empty texts count as not given.
struct CollectArguments {
  std::optional<std::string> config_path, task, dump_path, level;
  std::optional<std::string> steps_json;  // the `step` argument as JSON text
  // What `msprobe narrow` wrote: says what is collected, instead of the file. Without the argument
  // dump_path, "_narrow" follows the dump_path of the file.
  std::optional<std::string> narrow_path = {};
};

// What is in force, in the order of the keys of config.json: key ("task", "statistics.list", …) and
// value as JSON text. For the config echo in dump.json and for the differences between two
// constructions (decisions.md 13).
std::vector<std::pair<std::string, std::string>> Settings(const CollectConfig& config);
// Those as one JSON object in one line.
std::string SettingsJson(const CollectConfig& config);
// "level: \"L0\" instead of \"L1\"" for every setting of `wanted` that differs from the one in
// force.
std::vector<std::string> SettingDifferences(const CollectConfig& in_force,
                                            const CollectConfig& wanted);

// All problems at once, up to 20 (decisions.md 2): the first is the error, the rest are in its
// message, one per line. A key that an argument overrides is not looked at in the file. Without
// config_path: built-in defaults, dump_path "./dump_path". Unknown keys: decisions.md 12. Errors:
// those of reading the file; kConfig; kInvalidArgument when an argument is the first problem;
// kUnsupported when the file asks for something this tool does not do (level L2, free_benchmark,
// grad_probe, exception_dump).
Result<CollectConfig> ReadCollectConfig(const CollectArguments& arguments, LogSink& log);
// The part of that for narrow_path: task, level, steps, ranks and the section of the task from
// there, how things are collected from the file.
Result<CollectConfig> ReadNarrowedConfig(const CollectArguments& arguments, LogSink& log);

}  // namespace msprobe::config
