// The command `overflow_check`, `nan_analyze` in the older spelling.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/compare_app.h"
#include "cli/completion.h"
#include "cli/main.h"
#include "cli/terminal.h"

namespace msprobe::cli {

// `name`: as the user typed the command; `arguments` after it. Returns the exit status.
int RunOverflow(std::string_view name, std::span<const std::string> arguments, app::Face face,
                const Hooks& hooks, Terminal& terminal);
// The work of one item of the command, in a worker of an engine.
Status RunOverflowItem(std::string_view payload, const app::ItemContext& context);
std::vector<OptionShape> OverflowShape();

}  // namespace msprobe::cli
