// The command `merge_result`.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "app/compare_app.h"
#include "cli/completion.h"
#include "cli/main.h"
#include "cli/terminal.h"

namespace msprobe::cli {

// `arguments` after the command's name. Returns the exit status.
int RunMerge(std::span<const std::string> arguments, app::Face face, const Hooks& hooks,
             Terminal& terminal);
// The work of one item of the command, in a worker of an engine.
Status RunMergeItem(const EngineCommand& command, std::string_view payload,
                    const app::ItemContext& context);
std::vector<OptionShape> MergeShape();

}  // namespace msprobe::cli
