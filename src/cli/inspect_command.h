// `msprobe inspect` and `msprobe diff`: looking into dumps and tensor files.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/completion.h"
#include "cli/terminal.h"

namespace msprobe::cli {

// `arguments` after the command's name; the exit status.
int RunInspect(std::span<const std::string> arguments, Terminal& terminal);
int RunDiff(std::span<const std::string> arguments, Terminal& terminal);
std::vector<OptionShape> InspectShape();
std::vector<OptionShape> DiffShape();

}  // namespace msprobe::cli
