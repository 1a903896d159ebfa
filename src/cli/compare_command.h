// The command `compare`.
#pragma once

#include <span>
#include <string>

#include "cli/terminal.h"
#include "compare/compare.h"

namespace msprobe::cli {

// `arguments` after the command's name. Returns the exit status.
int RunCompare(std::span<const std::string> arguments, compare::Face face, Terminal& terminal);

}  // namespace msprobe::cli
