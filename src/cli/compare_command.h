// The command `compare`.
#pragma once

#include <span>
#include <string>

#include "app/compare_app.h"
#include "cli/main.h"
#include "cli/terminal.h"

namespace msprobe::cli {

// `arguments` after the command's name. Returns the exit status.
int RunCompare(std::span<const std::string> arguments, app::Face face, const Hooks& hooks,
               Terminal& terminal);

}  // namespace msprobe::cli
