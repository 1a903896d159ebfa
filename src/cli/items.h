// A worker's side of the engine: runs one item of a command.
#pragma once

#include <string_view>

#include "cli/main.h"

namespace msprobe::cli {

// `command` as the one who asked was given it. Errors: wrong arguments (files that this host does
// not see), those of the item.
Status RunItem(const EngineCommand& command, std::string_view payload,
               const app::ItemContext& context, const Hooks& hooks);

}  // namespace msprobe::cli
