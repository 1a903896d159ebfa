#include "cli/inspect_command.h"

#include <vector>

#include "app/diff_app.h"
#include "app/inspect_app.h"
#include "cli/options.h"
#include "cli/status.h"

namespace msprobe::cli {
namespace {

constexpr const char* kCommon = "Common";
constexpr const char* kStatus = "Exit status: 0 done, 1 failed, 2 refused before any work.\n";

// Parses, and answers --help and wrong arguments. The status, or -1 to go on.
int Prepare(CLI::App& parser, std::span<const std::string> arguments, const TerminalFlags& flags,
            const std::string& help, Terminal& terminal) {
  std::vector<Error> problems = CheckArguments(parser, arguments);
  if (problems.empty()) problems = Parse(parser, arguments);
  if (problems.empty() && flags.help) {
    terminal.PrintAnswer(help + OptionHelp(parser, kCommon) + kStatus);
    return kDone;
  }
  terminal.SetLevel(flags);
  if (problems.empty()) return -1;
  terminal.PrintErrors(problems);
  return kRefused;
}

int Refuse(const Error& error, Terminal& terminal) {
  terminal.PrintErrors({&error, 1});
  return StatusOf(error);
}

void AddInspectOptions(CLI::App& parser, app::InspectOptions& options, TerminalFlags& flags,
                       bool& json) {
  SetUp(parser);
  parser
      .add_option("dump", options.path,
                  "dump.json, a folder of a rank, step or run, or a tensor file")
      ->type_name("PATH")
      ->group(kCommon);
  parser
      .add_option("--entry", options.entry,
                  "only entries of this name, beginning or pattern (* and ?)")
      ->type_name("NAME")
      ->group(kCommon);
  parser.add_flag("--tree", options.tree, "the modules with the number of their entries")
      ->group(kCommon);
  parser.add_option("--most", options.most, "so many lines; 0: all")
      ->type_name("N")
      ->default_str("20")
      ->group(kCommon);
  parser.add_flag("--json", json, "everything, as JSON")->group(kCommon);
  AddTerminalFlags(parser, flags);
}

// The option --axis.
CLI::Option* AddDiffOptions(CLI::App& parser, app::DiffOptions& options, TerminalFlags& flags,
                            bool& json, int& axis) {
  SetUp(parser);
  parser.add_option("target", options.target, "a tensor file, or a dump with --entry")
      ->type_name("A")
      ->group(kCommon);
  parser.add_option("golden", options.golden, "what it should be, of the same kind")
      ->type_name("B")
      ->group(kCommon);
  parser.add_option("--entry", options.entry, "a call of the dumps, or one of its tensors")
      ->type_name("NAME")
      ->group(kCommon);
  parser
      .add_option("--golden-entry", options.golden_entry,
                  "its name in B, where that is another one")
      ->type_name("NAME")
      ->group(kCommon);
  parser.add_option("-k,--first", options.limits.first, "so many places of difference")
      ->type_name("N")
      ->default_str("5")
      ->group(kCommon);
  parser.add_option("--above", options.limits.above, "differences up to X count as none")
      ->type_name("X")
      ->default_str("0")
      ->group(kCommon);
  CLI::Option* axis_option =
      parser
          .add_option("--axis", axis,
                      "show the error by index of this axis; default: the one that says most")
          ->type_name("N")
          ->group(kCommon);
  parser.add_flag("--json", json, "everything, as JSON")->group(kCommon);
  AddTerminalFlags(parser, flags);
  return axis_option;
}

}  // namespace

int RunInspect(std::span<const std::string> arguments, Terminal& terminal) {
  app::InspectOptions options;
  TerminalFlags flags;
  bool json = false;
  CLI::App parser;
  AddInspectOptions(parser, options, flags, json);
  const std::string help =
      "Show what is in a dump: its entries and tensors, the stack of a call, the modules, and "
      "where it is torn.\n\n"
      "Usage: msprobe inspect PATH [--entry NAME] [options]\n\n";
  if (const int status = Prepare(parser, arguments, flags, help, terminal); status >= 0)
    return status;
  if (options.path.empty()) {
    return Refuse(MissingOption("PATH", "give a dump.json, a folder or a tensor file"), terminal);
  }
  const Result<app::InspectRun> run = app::Inspect(options);
  if (!run.ok()) return Refuse(run.error(), terminal);
  if (json) {
    terminal.PrintAnswer(app::InspectJson(options, *run));
  } else if (!flags.quiet) {
    terminal.PrintAnswer(app::InspectText(options, *run));
  }
  terminal.PrintLine("inspect: " + app::InspectClosingLine(*run));
  return kDone;
}

int RunDiff(std::span<const std::string> arguments, Terminal& terminal) {
  app::DiffOptions options;
  TerminalFlags flags;
  bool json = false;
  int axis = 0;
  CLI::App parser;
  CLI::Option* axis_option = AddDiffOptions(parser, options, flags, json, axis);
  const std::string help =
      "Show where two tensors differ: first and largest differences, how large, along which "
      "axis.\n\n"
      "Usage: msprobe diff A.pt B.pt [options]\n"
      "       msprobe diff DUMP_A DUMP_B --entry NAME [options]\n\n";
  if (const int status = Prepare(parser, arguments, flags, help, terminal); status >= 0)
    return status;
  if (options.target.empty() || options.golden.empty()) {
    return Refuse(MissingOption("A B", "give two tensor files, or two dumps with --entry"),
                  terminal);
  }
  if (axis_option->count() > 0) options.axis = axis;
  const Result<app::DiffRun> run = app::Diff(options);
  if (!run.ok()) return Refuse(run.error(), terminal);
  if (json) {
    terminal.PrintAnswer(app::DiffJson(options, *run));
  } else if (!flags.quiet) {
    terminal.PrintAnswer(app::DiffText(options, *run));
  }
  terminal.PrintLine("diff: " + app::DiffClosingLine(*run));
  return kDone;
}

std::vector<OptionShape> InspectShape() {
  app::InspectOptions options;
  TerminalFlags flags;
  bool json = false;
  CLI::App parser;
  AddInspectOptions(parser, options, flags, json);
  return Shapes(parser);
}

std::vector<OptionShape> DiffShape() {
  app::DiffOptions options;
  TerminalFlags flags;
  bool json = false;
  int axis = 0;
  CLI::App parser;
  AddDiffOptions(parser, options, flags, json, axis);
  return Shapes(parser);
}

}  // namespace msprobe::cli
