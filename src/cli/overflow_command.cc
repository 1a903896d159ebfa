#include "cli/overflow_command.h"

#include <fmt/format.h>

#include <vector>

#include "app/analysis_app.h"
#include "app/json_lines.h"
#include "cli/engine_options.h"
#include "cli/options.h"
#include "cli/status.h"

namespace msprobe::cli {
namespace {

constexpr const char* kCommon = "Common";

struct OverflowArgs {
  TerminalFlags terminal;
  std::string input_path, output_path = "./output", json_path;
  EngineArgs engine;
};

void AddOptions(CLI::App& app, OverflowArgs& out) {
  SetUp(app);
  app.add_option("-i,--input_path", out.input_path,
                 "step folder with its ranks, or the folder of one rank")
      ->type_name("DIR")
      ->group(kCommon);
  app.add_option("-o,--output_path", out.output_path, "folder of the results, made when absent")
      ->type_name("DIR")
      ->default_str("./output")
      ->group(kCommon);
  app.add_option("--json", out.json_path,
                 "also every bad call as one line of JSON; - is standard output")
      ->type_name("FILE")
      ->group(kCommon);
  AddEngineOptions(app, out.engine, kCommon);
  AddTerminalFlags(app, out.terminal);
}

std::string Help(CLI::App& app, std::string_view name, app::Face face) {
  return fmt::format(
             "Find the entry that brought the first NaN or infinity into a dump.\n\n"
             "Usage: msprobe {}{} -i DIR [-o DIR]\n\n"
             "Looks, over all ranks, for the first call with clean inputs and a bad output, and "
             "for "
             "the calls that it reached.\n"
             "Writes anomaly_analyze_*.json when there is one, and {}_summary_*.json.\n\n",
             face == app::Face::kOld ? "-f pytorch " : "", name, name) +
         OptionHelp(app, kCommon) +
         "Exit status: 0 done, 1 failed or some rank left out, 2 refused before any work, 130 "
         "interrupted.\n";
}

}  // namespace

int RunOverflow(std::string_view name, std::span<const std::string> arguments, app::Face face,
                const Hooks& hooks, Terminal& terminal) {
  OverflowArgs args;
  CLI::App parser;
  AddOptions(parser, args);
  std::vector<Error> problems = CheckArguments(parser, arguments);
  if (problems.empty()) problems = Parse(parser, arguments);
  if (problems.empty() && args.terminal.help) {
    terminal.PrintAnswer(Help(parser, name, face));
    return kDone;
  }
  terminal.SetLevel(args.terminal);
  if (problems.empty()) {
    CheckInputFolder(args.input_path, "give the step folder of the dump",
                     "-i is the step folder of a dump", problems);
  }
  const EngineChoice choice = CheckEngine(args.engine, hooks, problems);
  if (!problems.empty()) {
    terminal.PrintErrors(problems);
    return kRefused;
  }
  app::OverflowOptions options;
  options.input_dir = args.input_path;
  options.output_dir = args.output_path;
  options.json_path = args.json_path;
  options.command = name;
  options.echo = Echo(parser);
  options.workers = choice.workers;
  const EngineCommand command = {
      face == app::Face::kOld, std::string(name), {arguments.begin(), arguments.end()}};
  const auto engine = MakeEngine(choice, args.engine, hooks, command);
  options.engine = engine.get();
  CancelToken cancel;
  const InterruptScope interrupts(cancel);
  const Result<app::AnalysisRun> run = app::CheckOverflow(options, terminal, terminal, &cancel);
  if (!run.ok()) return EndWithError(run.error(), interrupts, terminal);
  if (!args.terminal.quiet && args.json_path != app::kStandardOutput)
    terminal.PrintAnswer(app::AnalysisAnswer(*run));
  terminal.PrintLine(fmt::format("{}: {}", name, app::AnalysisClosingLine(*run)));
  return run->partial ? kFailed : kDone;
}

Status RunOverflowItem(std::string_view payload, const app::ItemContext& context) {
  return app::RunOverflowItem(payload, context);
}

std::vector<OptionShape> OverflowShape() {
  OverflowArgs args;
  CLI::App parser;
  AddOptions(parser, args);
  return Shapes(parser);
}

}  // namespace msprobe::cli
