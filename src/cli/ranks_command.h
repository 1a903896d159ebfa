// The command `ranks`.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/completion.h"
#include "cli/terminal.h"

namespace msprobe::cli {

// `arguments` after the command's name. Returns the exit status.
int RunRanks(std::span<const std::string> arguments, Terminal& terminal);
std::vector<OptionShape> RanksShape();

}  // namespace msprobe::cli
