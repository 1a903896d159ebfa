#include "cli/items.h"

#include "cli/compare_command.h"
#include "cli/merge_command.h"
#include "cli/overflow_command.h"

namespace msprobe::cli {

Status RunItem(const EngineCommand& command, std::string_view payload,
               const app::ItemContext& context, const Hooks& hooks) {
  if (command.name == "compare") return RunCompareItem(command, payload, context, hooks);
  if (command.name == "merge_result") return RunMergeItem(command, payload, context);
  if (command.name == "overflow_check" || command.name == "nan_analyze") {
    return RunOverflowItem(payload, context);
  }
  return Error(ErrorCode::kInternal, "no command with work items").At(command.name);
}

}  // namespace msprobe::cli
