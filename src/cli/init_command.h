// `msprobe init`: a commented config.json for a purpose.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/completion.h"
#include "cli/terminal.h"

namespace msprobe::cli {

// `arguments` after the command's name; the exit status.
int RunInit(std::span<const std::string> arguments, Terminal& terminal);
std::vector<OptionShape> InitShape();

}  // namespace msprobe::cli
