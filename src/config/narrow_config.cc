// Two files to one configuration: how to collect from the user's own, what from that of `msprobe
// narrow`.
#include "config/collect_config.h"

namespace msprobe::config {
namespace {

std::string WithoutSlashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

}  // namespace

Result<CollectConfig> ReadNarrowedConfig(const CollectArguments& arguments, LogSink& log) {
  CollectArguments own;
  own.config_path = arguments.config_path;
  own.dump_path = arguments.dump_path;
  MSPROBE_ASSIGN(CollectConfig base, ReadCollectConfig(own, log));
  CollectArguments narrowed = arguments;
  narrowed.narrow_path.reset();
  narrowed.config_path = arguments.narrow_path;
  const bool given = arguments.dump_path && !arguments.dump_path->empty();
  if (!given) narrowed.dump_path = WithoutSlashes(base.dump_path) + "_narrow";
  MSPROBE_ASSIGN(CollectConfig what, ReadCollectConfig(narrowed, log));
  CollectConfig out = std::move(base);
  out.dump_path = std::move(what.dump_path);
  out.task = what.task;
  out.level = what.level;
  if (!what.ranks.empty()) out.ranks = std::move(what.ranks);
  if (!what.steps.empty()) out.steps = std::move(what.steps);
  out.scope = std::move(what.scope);
  out.list = std::move(what.list);
  out.tensor_list = std::move(what.tensor_list);
  out.forward = what.forward;
  out.backward = what.backward;
  out.input = what.input;
  out.output = what.output;
  out.data_mode_all = what.data_mode_all;
  out.summary_mode = what.summary_mode;
  out.sketch = what.sketch;
  out.sketch_size = what.sketch_size;
  out.sketch_seed = what.sketch_seed;
  out.slice = std::move(what.slice);
  out.request_id = std::move(what.request_id);
  out.bench_path = std::move(what.bench_path);
  out.diff_nums = what.diff_nums;
  out.overflow_nums = what.overflow_nums;
  for (std::string& key : what.unknown_keys) out.unknown_keys.push_back(std::move(key));
  return out;
}

}  // namespace msprobe::config
