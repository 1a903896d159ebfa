// Options of the search for the operator at fault, and its runs without a comparison: one dump by
// itself, constants learned from clean runs (app/culprit_runs.h).
#pragma once

#include <string>
#include <vector>

#include "app/compare_app.h"
#include "cli/fail_on.h"
#include "cli/terminal.h"

namespace CLI {
class App;
}

namespace msprobe::cli {

struct CulpritArgs {
  bool one_dump = false;
  std::vector<std::string> learn_floor;  // two runs
  std::string floor_path;
  double q = 0;  // 0: not given
  // No comparison: one of the two runs.
  bool alone() const { return one_dump || !learn_floor.empty(); }
};

// `alone`: also --one-dump and --learn-floor.
void AddCulpritOptions(CLI::App& app, CulpritArgs& out, const char* group, bool alone);
// Paths that are missing or contradict each other. `target`, `golden`: -tp and -gp.
void CheckCulpritPaths(const CulpritArgs& args, const std::string& target,
                       const std::string& golden, std::vector<Error>& problems);
// Into the options of the comparison: the level, constants, and the paths of a run without one.
// Problems: a level outside (0, 1), a floor file that is none.
void ReadCulpritArgs(const CulpritArgs& args, app::CompareOptions& out,
                     std::vector<Error>& problems);

// --one-dump or --learn-floor; the exit status.
int RunCulpritAlone(const CulpritArgs& args, const app::CompareOptions& options,
                    const FailOn& fail_on, const Attended& attended);

}  // namespace msprobe::cli
