// The configuration files that commands write.
#pragma once

#include <string>

#include "base/result.h"

namespace msprobe::app {

// kInvalidArgument when `path` does not end in .json, or exists and `force` is off.
Status CheckConfigFile(const std::string& path, bool force);

}  // namespace msprobe::app
