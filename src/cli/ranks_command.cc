#include "cli/ranks_command.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "app/ranks_app.h"
#include "cli/fail_on.h"
#include "cli/options.h"
#include "cli/status.h"

namespace msprobe::cli {
namespace {

constexpr const char* kCommon = "Common";

struct RanksArgs {
  TerminalFlags terminal;
  std::string input_path, output_path = "./output", replicas, fail_on;
};

void AddOptions(CLI::App& app, RanksArgs& out) {
  SetUp(app);
  app.add_option("-i,--input_path", out.input_path, "step folder of a dump, with its ranks")
      ->type_name("DIR")
      ->group(kCommon);
  app.add_option("-o,--output_path", out.output_path, "folder of the summary, made when absent")
      ->type_name("DIR")
      ->default_str("./output")
      ->group(kCommon);
  app.add_option("--replicas", out.replicas,
                 "ranks that hold the same model, groups divided by /: 0,2/1,3; left out: found by "
                 "their parameters")
      ->type_name("N,…/…")
      ->group(kCommon);
  app.add_option("--fail-on", out.fail_on,
                 "end with status 3 when something was found: error, or odd")
      ->type_name("VERDICT")
      ->group(kCommon);
  AddTerminalFlags(app, out.terminal);
}

std::string Help(CLI::App& app) {
  return "Read one dump across its ranks, without a reference: which data-parallel replica is "
         "unlike the others, and\nwhich collective gave what its inputs on all ranks do not "
         "give.\n\nUsage: msprobe ranks -i DIR [-o DIR]\n\nWrites ranks_summary_*.json.\n\n" +
         OptionHelp(app, kCommon) +
         "Exit status: 0 done, 1 failed or some rank left out, 2 refused before any work, 3 "
         "--fail-on reached, 130 interrupted.\n";
}

void ReadGroups(const std::string& text, std::vector<std::vector<int64_t>>& out,
                std::vector<Error>& problems) {
  if (text.empty()) return;
  out.emplace_back();
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    int64_t rank = -1;
    const auto r = std::from_chars(at, end, rank);
    const bool ends = r.ptr == end;
    if (r.ec != std::errc() || rank < 0 || (!ends && *r.ptr != ',' && *r.ptr != '/')) break;
    out.back().push_back(rank);
    if (ends) return;
    if (*r.ptr == '/') out.emplace_back();
    at = r.ptr + 1;
  }
  problems.push_back(Error(ErrorCode::kInvalidArgument, fmt::format("has no value '{}'", text))
                         .At("--replicas")
                         .Hint("numbers of ranks, like 0,2/1,3"));
}

}  // namespace

int RunRanks(std::span<const std::string> arguments, Terminal& terminal) {
  RanksArgs args;
  CLI::App parser;
  AddOptions(parser, args);
  std::vector<Error> problems = CheckArguments(parser, arguments);
  if (problems.empty()) problems = Parse(parser, arguments);
  if (problems.empty() && args.terminal.help) {
    terminal.PrintAnswer(Help(parser));
    return kDone;
  }
  terminal.SetLevel(args.terminal);
  app::RanksOptions options;
  FailOn fail_on;
  if (auto e = ReadFailOn(args.fail_on, "odd", fail_on)) problems.push_back(std::move(*e));
  if (problems.empty()) {
    CheckInputFolder(args.input_path, "give the step folder of the dump",
                     "-i is the step folder of a dump", problems);
  }
  ReadGroups(args.replicas, options.groups, problems);
  if (!problems.empty()) {
    terminal.PrintErrors(problems);
    return kRefused;
  }
  options.input_dir = args.input_path;
  options.output_dir = args.output_path;
  options.echo = Echo(parser);
  CancelToken cancel;
  const InterruptScope interrupts(cancel);
  const Result<app::RanksRun> run = app::ReadAcrossRanks(options, terminal, terminal, &cancel);
  if (!run.ok()) return EndWithError(run.error(), interrupts, terminal);
  if (!args.terminal.quiet) terminal.PrintAnswer(app::RanksAnswer(*run));
  terminal.PrintLine("ranks: " + app::RanksClosingLine(*run));
  if (run->partial) return kFailed;
  const bool found = !run->replicas.odd.empty() || !run->collectives.empty();
  return (fail_on.error || fail_on.rest) && found ? kFailOn : kDone;
}

std::vector<OptionShape> RanksShape() {
  RanksArgs args;
  CLI::App parser;
  AddOptions(parser, args);
  return Shapes(parser);
}

}  // namespace msprobe::cli
