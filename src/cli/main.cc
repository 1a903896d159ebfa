#include "cli/main.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <span>
#include <string_view>

#include "app/build_facts.h"
#include "cli/commands.h"
#include "cli/compare_command.h"
#include "cli/completion.h"
#include "cli/doctor_command.h"
#include "cli/init_command.h"
#include "cli/inspect_command.h"
#include "cli/merge_command.h"
#include "cli/names.h"
#include "cli/narrow_command.h"
#include "cli/overflow_command.h"
#include "cli/precheck_command.h"
#include "cli/precision_command.h"
#include "cli/ranks_command.h"
#include "cli/status.h"
#include "cli/terminal.h"

namespace msprobe::cli {
namespace {

constexpr std::string_view kHelp =
    R"(msprobe finds the operator that makes a model's numbers differ between devices, versions and precisions.

Usage:
  msprobe compare -tp TARGET -gp GOLDEN [-o DIR]         compare two dumps; one csv per rank
  msprobe -f pytorch compare -i compare.json [-o DIR]    the same in the spelling of the 8.x releases; xlsx and advice
  msprobe compare --help                                 all options

TARGET is the dump under test, GOLDEN the reference: two dump.json files, two folders of ranks, or two folders of steps.
Dumps are recorded in a training or inference script by msprobe.pytorch.PrecisionDebugger.

Commands:
)";
constexpr std::string_view kHelpEnd =
    R"(
Other:
  --version              version of this program, and what it was built from
  -h, --help             this text

Exit status: 0 done, 1 failed or done in part, 2 refused before any work, 3 --fail-on reached, 130 interrupted.
)";

void PrintHelp(Terminal& terminal) {
  terminal.PrintAnswer(std::string(kHelp) + CommandList() + std::string(kHelpEnd));
}

int Refuse(Terminal& terminal, const Error& error) {
  terminal.PrintErrors({&error, 1});
  return kRefused;
}

int RunCommand(std::span<const std::string> args, app::Face face, const Hooks& hooks,
               Terminal& terminal) {
  const std::string& name = args.front();
  if (name == "compare") return RunCompare(args.subspan(1), face, hooks, terminal);
  if (name == "api_precision_compare") return RunPrecision(args.subspan(1), face, terminal);
  if (IsPrecheckCommand(name)) return RunPrecheck(name, args.subspan(1), face, hooks, terminal);
  if (name == "merge_result") return RunMerge(args.subspan(1), face, hooks, terminal);
  if (name == "inspect") return RunInspect(args.subspan(1), terminal);
  if (name == "diff") return RunDiff(args.subspan(1), terminal);
  if (name == "overflow_check" || name == "nan_analyze") {
    return RunOverflow(name, args.subspan(1), face, hooks, terminal);
  }
  if (face == app::Face::kNew) {
    if (name == "doctor") return RunDoctor(args.subspan(1), hooks, terminal);
    if (name == "init") return RunInit(args.subspan(1), terminal);
    if (name == "narrow") return RunNarrow(args.subspan(1), terminal);
    if (name == "ranks") return RunRanks(args.subspan(1), terminal);
    if (name == "completion") return RunCompletion(args.subspan(1), CommandShapes(), terminal);
  }
  if (IsPlannedCommand(name)) return Refuse(terminal, PlannedError(name));
  return Refuse(terminal,
                UnknownError(name.starts_with('-') ? "option" : "command", name, CommandNames()));
}

bool IsHelp(std::string_view a) { return a == "-h" || a == "--help" || a == "help"; }

// `-f pytorch COMMAND …`, the spelling of the 8.x releases: the framework comes first.
int RunOldSpelling(std::span<const std::string> args, const Hooks& hooks, Terminal& terminal) {
  const bool joined = args.front().starts_with("--framework=");
  const size_t used = joined ? 1 : 2;
  if (args.size() < used) {
    PrintHelp(terminal);
    return kDone;
  }
  const std::string framework = joined ? args[0].substr(args[0].find('=') + 1) : args[1];
  if (framework == "mindspore") {
    return Refuse(terminal, Error(ErrorCode::kUnsupported, "this build reads PyTorch dumps only")
                                .At("-f mindspore")
                                .Hint("use -f pytorch"));
  }
  if (framework != "pytorch") {
    return Refuse(terminal, UnknownError("framework", framework, {"pytorch", "mindspore"}));
  }
  if (args.size() == used || IsHelp(args[used])) {
    PrintHelp(terminal);
    return kDone;
  }
  return RunCommand(args.subspan(used), app::Face::kOld, hooks, terminal);
}

int Run(std::span<const std::string> args, const Hooks& hooks, Terminal& terminal) {
  if (args.empty() || IsHelp(args[0])) {
    PrintHelp(terminal);
    return kDone;
  }
  if (args[0] == "--version" || args[0] == "-V") {
    terminal.PrintAnswer(app::VersionText());
    return kDone;
  }
  if (args[0] == "-f" || args[0] == "--framework" || args[0].starts_with("--framework=")) {
    return RunOldSpelling(args, hooks, terminal);
  }
  return RunCommand(args, app::Face::kNew, hooks, terminal);
}

}  // namespace

int Main(const std::vector<std::string>& argv, const Hooks& hooks) {
  Terminal terminal(LogLevel::kWarning);
  // The one translation point for exceptions: the libraries below have none of their own.
  try {
    return Run(std::span(argv).subspan(std::min<size_t>(argv.size(), 1)), hooks, terminal);
  } catch (const std::bad_alloc&) {
    const Error error(ErrorCode::kInternal, "out of memory");
    terminal.PrintErrors({&error, 1});
  } catch (const std::exception& e) {
    const Error error =
        Error(ErrorCode::kInternal, e.what()).Hint("this is a fault of msprobe; please report it");
    terminal.PrintErrors({&error, 1});
  }
  return kFailed;
}

}  // namespace msprobe::cli
