#include "cli/merge_command.h"

#include <fmt/format.h>

#include <vector>

#include "app/json_lines.h"
#include "app/merge_app.h"
#include "cli/engine_options.h"
#include "cli/options.h"
#include "cli/status.h"
#include "config/merge_config.h"

namespace msprobe::cli {
namespace {

constexpr const char* kCommon = "Common";

struct MergeArgs {
  TerminalFlags terminal;
  std::string input_dir, output_dir, config_path, json_path;
  EngineArgs engine;
};

void AddOptions(CLI::App& app, MergeArgs& out) {
  SetUp(app);
  app.add_option("-i,--input_dir", out.input_dir,
                 "folder with compare_result_rank<n>_<time>.xlsx or .csv")
      ->type_name("DIR")
      ->group(kCommon);
  app.add_option("-o,--output_dir", out.output_dir, "folder of the workbook, made when absent")
      ->type_name("DIR")
      ->group(kCommon);
  app.add_option("--config_path", out.config_path,
                 "which rows (api) and which columns (compare_index)")
      ->type_name("YAML")
      ->group(kCommon);
  app.add_option("--json", out.json_path,
                 "also every row as one line of JSON; - is standard output")
      ->type_name("FILE")
      ->group(kCommon);
  AddEngineOptions(app, out.engine, kCommon);
  AddTerminalFlags(app, out.terminal);
}

std::string Help(CLI::App& app, app::Face face) {
  return fmt::format(
             "Put the reports of many ranks side by side, a sheet for each figure.\n\n"
             "Usage: msprobe {}merge_result -i DIR -o DIR -config YAML\n\n"
             "The YAML file:\n\n"
             "  api: [Torch.mul, Distributed.all_reduce.0.forward, 'Module.*.Linear.forward']\n"
             "  compare_index: [Max diff, L2norm diff]    # left out: all of the report's mode\n\n"
             "A name takes every row that begins with it; * ? [ ] make it a pattern.\n\n",
             face == app::Face::kOld ? "-f pytorch " : "") +
         OptionHelp(app, kCommon) +
         "Exit status: 0 done, 1 failed or some rank left out, 2 refused before any work, 130 "
         "interrupted.\n";
}

void CheckRequired(const MergeArgs& args, std::vector<Error>& problems) {
  CheckInputFolder(args.input_dir, "give the folder of the ranks' reports",
                   "-i is the folder of the ranks' reports", problems);
  if (args.output_dir.empty())
    problems.push_back(MissingOption("-o", "give the folder of the workbook"));
  if (args.config_path.empty())
    problems.push_back(MissingOption("-config", "give the YAML file that names the rows"));
}

}  // namespace

int RunMerge(std::span<const std::string> arguments, app::Face face, const Hooks& hooks,
             Terminal& terminal) {
  MergeArgs args;
  CLI::App parser;
  AddOptions(parser, args);
  std::vector<Error> problems = CheckArguments(parser, arguments);
  if (problems.empty()) problems = Parse(parser, arguments);
  if (problems.empty() && args.terminal.help) {
    terminal.PrintAnswer(Help(parser, face));
    return kDone;
  }
  terminal.SetLevel(args.terminal);
  app::MergeOptions options;
  if (problems.empty()) CheckRequired(args, problems);
  if (!args.config_path.empty() && problems.empty()) {
    Result<config::MergeConfig> config = config::ReadMergeConfig(args.config_path, terminal);
    if (config.ok()) {
      options.config = std::move(config).value();
    } else {
      problems.push_back(std::move(config).error());
    }
  }
  const EngineChoice choice = CheckEngine(args.engine, hooks, problems);
  if (!problems.empty()) {
    terminal.PrintErrors(problems);
    return kRefused;
  }
  options.input_dir = args.input_dir;
  options.output_dir = args.output_dir;
  options.json_path = args.json_path;
  options.sort_names = face == app::Face::kNew;
  options.echo = Echo(parser);
  options.workers = choice.workers;
  const EngineCommand command = {
      face == app::Face::kOld, "merge_result", {arguments.begin(), arguments.end()}};
  const auto engine = MakeEngine(choice, args.engine, hooks, command);
  options.engine = engine.get();
  CancelToken cancel;
  const InterruptScope interrupts(cancel);
  const Result<app::MergeRun> run = app::MergeReports(options, terminal, &cancel);
  if (!run.ok()) return EndWithError(run.error(), interrupts, terminal);
  if (!args.terminal.quiet && args.json_path != app::kStandardOutput)
    terminal.PrintAnswer(app::MergeAnswer(*run));
  terminal.PrintLine("merge_result: " + app::MergeClosingLine(*run));
  return run->partial ? kFailed : kDone;
}

Status RunMergeItem(const EngineCommand& command, std::string_view payload,
                    const app::ItemContext& context) {
  MergeArgs args;
  CLI::App parser;
  AddOptions(parser, args);
  std::vector<Error> problems = CheckArguments(parser, command.arguments);
  if (problems.empty()) problems = Parse(parser, command.arguments);
  if (!problems.empty()) return std::move(problems.front());
  app::MergeOptions options;
  MSPROBE_ASSIGN(options.config, config::ReadMergeConfig(args.config_path, NullLog()));
  return app::RunMergeItem(options, payload, context);
}

std::vector<OptionShape> MergeShape() {
  MergeArgs args;
  CLI::App parser;
  AddOptions(parser, args);
  return Shapes(parser);
}

}  // namespace msprobe::cli
