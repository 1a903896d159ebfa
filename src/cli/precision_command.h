// The command `api_precision_compare`.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "app/compare_app.h"
#include "app/precision_app.h"
#include "base/error.h"
#include "cli/terminal.h"

namespace msprobe::cli {

// `arguments` after the command's name. Returns the exit status.
int RunPrecision(std::span<const std::string> arguments, app::Face face, Terminal& terminal);

// Values that the commands of the pre-check share. nullopt when all is well.
std::optional<Error> ReadStandard(const std::string& value, app::Face face,
                                  precheck::Standard& out);
std::optional<Error> ReadPrecheckRules(const std::string& value, precheck::Rules& out);
std::optional<Error> ReadDigits(const std::string& value, precheck::NumberFormat& out);

}  // namespace msprobe::cli
