// Which files belong together: from the two paths of a comparison to a list of rank pairs
// (compare.md 1.4, 15).
#pragma once

#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "dump/reader.h"

namespace msprobe::app {

// One pair of dump.json or debug.json files that is compared by itself.
struct RankJob {
  std::string step;         // "step0" in a dump root, else empty
  std::string rank;         // name of the target rank folder ("rank0"), empty for two files
  std::string target_rank;  // folders, as named on each side
  std::string golden_rank;
  std::string target_json;
  std::string golden_json;
  bool beside_dump =
      false;  // a debug.json whose folder has a dump.json too, compared by another job
};

// A rank or step that one side lacks, or whose folder has no dump.
struct MissingPart {
  std::string step;
  std::string rank;
  std::string reason;  // one sentence
};

struct ComparePlan {
  std::vector<RankJob> jobs;         // steps ascending, ranks ascending
  std::vector<MissingPart> missing;  // named in summary and closing line; make the run partial
  bool folders = false;              // the paths were folders
};

// Everything wrong with the two paths, the first one first; empty when a plan can be made. Both
// must exist, be of the same kind (kMismatch), and files must be named dump.json or debug.json
// alike (kInvalidArgument).
std::vector<Error> CheckComparePaths(const std::string& target, const std::string& golden);

// Parts of a plan that are wanted; empty: all. Numbers of folders; `rank` counts as 0.
struct PlanFilter {
  std::vector<int64_t> ranks, steps;
  bool empty() const { return ranks.empty() && steps.empty(); }
};

// Accepts two files, two rank folders (with dump.json inside), two step folders (rank, rank<n>,
// proc<pid> inside) or two dump roots (step<n> inside). Ranks pair by number; without a common
// number by position, with a warning. Errors: those of CheckComparePaths; kMismatch when the
// folders hold different things; kNotFound when no pair is left
// or a wanted rank or step is on neither side.
Result<ComparePlan> PlanCompare(const std::string& target, const std::string& golden,
                                const PlanFilter& filter, LogSink& log);

// One warning that names the folders in `dir` that look like ranks and are not in `known`.
void WarnOfStrayFolders(const std::string& dir, const std::vector<dump::RankDir>& known,
                        LogSink& log);

}  // namespace msprobe::app
