// `msprobe doctor`: this machine, and what will be collected of a script or model.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/completion.h"
#include "cli/main.h"
#include "cli/terminal.h"

namespace msprobe::cli {

// `arguments` after the command's name; what follows "--" belongs to the script. The exit status.
int RunDoctor(std::span<const std::string> arguments, const Hooks& hooks, Terminal& terminal);
std::vector<OptionShape> DoctorShape();

}  // namespace msprobe::cli
