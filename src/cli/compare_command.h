// The command `compare`.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "app/compare_app.h"
#include "cli/main.h"
#include "cli/terminal.h"

namespace msprobe::cli {

// `arguments` after the command's name. Returns the exit status.
int RunCompare(std::span<const std::string> arguments, app::Face face, const Hooks& hooks,
               Terminal& terminal);

// The work of one item of the command, in a worker of an engine.
Status RunCompareItem(const EngineCommand& command, std::string_view payload,
                      const app::ItemContext& context, const Hooks& hooks);

}  // namespace msprobe::cli
