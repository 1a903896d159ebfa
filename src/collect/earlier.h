// What earlier runs left in a dump_path (decisions.md 10).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/result.h"
#include "config/collect_config.h"

namespace msprobe::collect {

// Whether `folder` holds files of a dump.
bool HoldsDump(const std::string& folder);

// Clears the way for a run, as `overwrite` says: earlier dumps are moved to one folder
// `replaced-{timestamp}` of dump_path, removed, or refused. Processes that start at about the same
// time share that folder. A folder whose journal is locked belongs to a living process and stays.
class EarlierRuns {
 public:
  EarlierRuns(const config::CollectConfig& config, LogSink& log) : config_(config), log_(log) {}

  // All dumps called `name` ("rank0"), in whatever step: a run that is shorter than the one before
  // must not leave the later steps of that one beside its own. kMismatch when `overwrite` is
  // "refuse" and there is one.
  Status ClearAll(std::string_view name);
  // The one in `path`, which is step `step` of `name`.
  Status ClearOne(const std::string& path, int64_t step, std::string_view name);
  // Warns of rank folders that no process of this run will write: numbers from `world_size` on, and
  // of the names `rank` and `rank{R}` the kind that this run does not use.
  void WarnOfOthers(bool rank_known, int64_t world_size);

 private:
  Status MoveAway(const std::string& path, int64_t step, std::string_view name);
  std::string TargetFor(const std::string& path, std::string_view name);

  const config::CollectConfig& config_;
  LogSink& log_;
  std::string target_;  // replaced-… of this run
  bool said_ = false;
};

}  // namespace msprobe::collect
