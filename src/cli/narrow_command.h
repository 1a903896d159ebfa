// `msprobe narrow`: the configuration of the next run, from two cheap dumps.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/completion.h"
#include "cli/terminal.h"

namespace msprobe::cli {

// `arguments` after the command's name; the exit status.
int RunNarrow(std::span<const std::string> arguments, Terminal& terminal);
std::vector<OptionShape> NarrowShape();

}  // namespace msprobe::cli
