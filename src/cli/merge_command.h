// The command `merge_result`.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "app/compare_app.h"
#include "cli/completion.h"
#include "cli/terminal.h"

namespace msprobe::cli {

// `arguments` after the command's name. Returns the exit status.
int RunMerge(std::span<const std::string> arguments, app::Face face, Terminal& terminal);
std::vector<OptionShape> MergeShape();

}  // namespace msprobe::cli
