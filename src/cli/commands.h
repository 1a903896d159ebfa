// The list of commands, in the order of the help.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/completion.h"

namespace msprobe::cli {

struct Command {
  std::string_view name;
  std::string_view summary;
  std::string_view older;     // another name of it, in the 8.x releases; listed in the summary only
  bool old_spelling = false;  // `msprobe -f pytorch NAME` too
};
std::span<const Command> AllCommands();

// The lines "  name   summary" of the help.
std::string CommandList();
// Every name, older ones too.
std::vector<std::string> CommandNames();
// With their options, for completion.
std::vector<CommandShape> CommandShapes();

}  // namespace msprobe::cli
