// The use case "narrow": from two cheap dumps to the configuration of the next, narrower run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"

namespace msprobe::app {

struct NarrowOptions {
  std::string target, golden;  // as of compare: files, rank folders, step folders or dump roots
  std::string output = "narrow.json";
  int64_t around = 3;                       // entries before and after the first bad one
  std::vector<int64_t> rank_ids, step_ids;  // only these; empty: all
  bool force = false;                       // an existing file may be replaced
};

struct NarrowRun {
  std::string entry, row, reason;                   // where the dumps part, and why that is said
  std::string step, rank;                           // folders, "step0", "rank0"; empty: two files
  std::optional<int64_t> step_number, rank_number;  // in the file; not known: not limited
  std::string level;                                // of the next run
  std::vector<std::string> names;                   // its list, in order of execution
  std::string output;
  std::vector<std::string> notes;  // of the comparison it rests on
};

// Compares the dumps (no report is written), finds the first place where they part - the first bad
// entry, else the first row that is no pass - and writes a config.json with the task "tensor" for
// this entry, its neighbours and their forward and backward calls, by the names of both sides. A
// dump of level L0 is followed by "mix", so that the calls inside the module are seen. Errors:
// those of compare; kNothingToDo when the dumps do not part; kInvalidArgument for an existing
// output without force, or a name that does not end in .json.
Result<NarrowRun> Narrow(const NarrowOptions& options, LogSink& log, ProgressSink& progress,
                         const CancelToken* cancel);

// Some lines for the terminal: where, and what to do next.
std::string NarrowText(const NarrowRun& run);

}  // namespace msprobe::app
