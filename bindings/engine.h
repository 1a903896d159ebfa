// Engines that Python reaches.
#pragma once

#include "cli/main.h"

namespace msprobe::bindings {

// Sets `engine` and `slots`.
void AddEngineHooks(cli::Hooks& hooks);

}  // namespace msprobe::bindings
