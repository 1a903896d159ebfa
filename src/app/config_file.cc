#include "app/config_file.h"

#include "base/file.h"

namespace msprobe::app {

Status CheckConfigFile(const std::string& path, bool force) {
  if (!path.ends_with(".json")) {
    return Error(ErrorCode::kInvalidArgument, "the name does not end in .json")
        .At(path)
        .Hint("PrecisionDebugger takes a config.json");
  }
  if (PathExists(path) && !force) {
    return Error(ErrorCode::kInvalidArgument, "exists already")
        .At(path)
        .Hint("give another name with -o, or --force to replace it");
  }
  return {};
}

}  // namespace msprobe::app
