#include "cli/commands.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/compare_args.h"
#include "cli/doctor_command.h"
#include "cli/init_command.h"
#include "cli/inspect_command.h"
#include "cli/merge_command.h"
#include "cli/narrow_command.h"
#include "cli/overflow_command.h"
#include "cli/precheck_args.h"
#include "cli/precheck_command.h"
#include "cli/precision_args.h"
#include "cli/ranks_command.h"

namespace msprobe::cli {
namespace {

constexpr Command kCommands[] = {
    {"init", "write a commented config.json for a purpose: first-difference, pre-check, …", "",
     false},
    {"doctor", "look at this machine, and at what will be collected of a script or model", "",
     false},
    {"compare", "compare two dumps and say where they part", "", true},
    {"inspect", "show what is in a dump or a tensor file, and where it is torn", "", true},
    {"diff", "two tensors or two calls side by side: where and how they differ", "", true},
    {"narrow", "from two cheap dumps: the config.json of the next, narrower run", "", false},
    {"merge_result", "put the reports of many ranks side by side", "", true},
    {"overflow_check", "find the entry that brought NaN or infinity into a dump", "nan_analyze",
     true},
    {"acc_check", "replay every recorded API and compare it with a reference in higher precision",
     "run_ut", true},
    {"multi_acc_check", "the same in several processes", "multi_run_ut", true},
    {"api_precision_compare",
     "final verdict of the pre-check: two details files of it, one per device, against each other",
     "", true},
    {"run_overflow_check",
     "name the recorded APIs that overflow on the device but not on the CPU, or the other way "
     "round",
     "", true},
    {"ranks", "read one dump across its ranks: the odd replica, collectives that contradict", "",
     false},
    {"op_generate", "write a stand-alone script that replays one recorded API", "", true},
    {"completion", "print the script that completes commands and options in bash, zsh or fish", "",
     false},
};

std::vector<OptionShape> ShapeOf(std::string_view name, app::Face face) {
  if (name == "compare") return CompareShape(face);
  if (name == "inspect") return InspectShape();
  if (name == "diff") return DiffShape();
  if (name == "merge_result") return MergeShape();
  if (name == "overflow_check" || name == "nan_analyze") return OverflowShape();
  if (name == "api_precision_compare") return PrecisionShape();
  if (name == "completion") return CompletionShape();
  if (name == "doctor") return DoctorShape();
  if (name == "init") return InitShape();
  if (name == "narrow") return NarrowShape();
  if (name == "ranks") return RanksShape();
  return PrecheckShape(std::string(name));
}

CommandShape Shape(std::string_view name, const Command& command) {
  CommandShape out{
      std::string(name), std::string(command.summary), ShapeOf(name, app::Face::kNew), {}};
  if (command.old_spelling) out.old_options = ShapeOf(name, app::Face::kOld);
  return out;
}

}  // namespace

std::span<const Command> AllCommands() { return kCommands; }

std::string CommandList() {
  size_t width = 0;
  for (const Command& c : kCommands) width = std::max(width, c.name.size());
  std::string out;
  for (const Command& c : kCommands) {
    const std::string older = c.older.empty() ? "" : fmt::format(" (older: {})", c.older);
    out += fmt::format("  {:<{}}  {}{}\n", c.name, width, c.summary, older);
  }
  return out;
}

std::vector<std::string> CommandNames() {
  std::vector<std::string> out;
  for (const Command& c : kCommands) {
    out.emplace_back(c.name);
    if (!c.older.empty()) out.emplace_back(c.older);
  }
  return out;
}

std::vector<CommandShape> CommandShapes() {
  std::vector<CommandShape> out;
  for (const Command& c : kCommands) {
    out.push_back(Shape(c.name, c));
    if (!c.older.empty()) out.push_back(Shape(c.older, c));
  }
  return out;
}

}  // namespace msprobe::cli
