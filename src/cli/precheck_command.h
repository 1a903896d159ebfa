// The commands run_ut, multi_run_ut, acc_check, multi_acc_check, run_overflow_check and
// op_generate: options are checked here, the
// replay needs PyTorch and is the host's (Hooks).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "app/compare_app.h"
#include "cli/main.h"
#include "cli/terminal.h"

namespace msprobe::cli {

bool IsPrecheckCommand(std::string_view name);

// `arguments` after the command's name. Returns the exit status.
int RunPrecheck(const std::string& command, std::span<const std::string> arguments, app::Face face,
                const Hooks& hooks, Terminal& terminal);

}  // namespace msprobe::cli
