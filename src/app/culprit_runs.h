// The search for the operator at fault where there is no pair to compare (docs/culprit.md): one
// dump by itself, and constants learned from clean runs.
#pragma once

#include <string>
#include <vector>

#include "app/compare_app.h"
#include "base/log.h"

namespace msprobe::app {

// `options.target` alone: entries whose own result is further off than a replay in float64
// explains. Counts are of entries: `error` those, `pass` the others that were judged, `unmatched`
// those that could not be. Writes compare_summary_*.json. Errors: bad paths, those of reading a
// lone dump, kCancelled.
Result<CompareRun> JudgeOneDump(const CompareOptions& options, LogSink& log, ProgressSink& progress,
                                const CancelToken* cancel);
std::string OneDumpAnswer(const CompareRun& run);
std::string OneDumpClosingLine(const CompareRun& run);

struct FloorRun {
  culprit::ScoreModel model;
  uint64_t entries = 0;   // scores that were learned from
  uint64_t infinite = 0;  // entries left out: NaN or infinity where the replay has a number
  double largest = 0;     // score
  std::string path;       // of the file that was written
  // What the two runs still show against each other under these constants; none is as it should be.
  std::vector<std::string> found;
};
// `options.target` and `options.golden` are runs that are known to be right. Every call of both is
// replayed, and the constants are refitted. `options.output_dir`: the file to write when it ends in
// ".json", else the folder of floor.json. Errors: bad paths, kNothingToDo (too few calls with
// tensors), kUnsupported (nothing can be replayed here), kCancelled, those of writing.
Result<FloorRun> LearnFloor(const CompareOptions& options, LogSink& log, ProgressSink& progress,
                            const CancelToken* cancel);
std::string FloorAnswer(const FloorRun& run);

}  // namespace msprobe::app
