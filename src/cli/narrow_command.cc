#include "cli/narrow_command.h"

#include <fmt/format.h>

#include "app/narrow_app.h"
#include "cli/options.h"
#include "cli/status.h"

namespace msprobe::cli {
namespace {

constexpr const char* kCommon = "Common";

void AddOptions(CLI::App& app, app::NarrowOptions& out, TerminalFlags& flags) {
  SetUp(app);
  app.add_option("target", out.target, "the dump under test, as for compare")
      ->type_name("A")
      ->group("Arguments");
  app.add_option("golden", out.golden, "the dump of the run to trust")
      ->type_name("B")
      ->group("Arguments");
  app.add_option("-o,--output", out.output, "the file to write")
      ->type_name("FILE")
      ->default_str("narrow.json")
      ->group(kCommon);
  app.add_option("--around", out.around, "so many calls before and after the first bad one")
      ->type_name("N")
      ->default_str("3")
      ->check(CLI::Range(int64_t{0}, int64_t{100000}))
      ->group(kCommon);
  app.add_option("--rank", out.rank_ids, "only these ranks of folders: 0,3")
      ->type_name("N,…")
      ->delimiter(',')
      ->check(CLI::NonNegativeNumber)
      ->group(kCommon);
  app.add_option("--step", out.step_ids, "only these steps of folders of steps: 0,3")
      ->type_name("N,…")
      ->delimiter(',')
      ->check(CLI::NonNegativeNumber)
      ->group(kCommon);
  app.add_flag("--force", out.force, "replace the file when it is there")->group(kCommon);
  AddTerminalFlags(app, flags);
}

std::string Help(CLI::App& parser) {
  return "Find where two cheap dumps part, and write the config.json of the next, narrower run.\n\n"
         "Usage: msprobe narrow A B [-o narrow.json]\n\n" +
         OptionHelp(parser, kCommon) +
         "Exit status: 0 done, 1 the dumps do not part, or failed, 2 refused before any work, 130 "
         "interrupted.\n";
}

}  // namespace

std::vector<OptionShape> NarrowShape() {
  CLI::App parser;
  app::NarrowOptions options;
  TerminalFlags flags;
  AddOptions(parser, options, flags);
  return Shapes(parser);
}

int RunNarrow(std::span<const std::string> arguments, Terminal& terminal) {
  app::NarrowOptions options;
  TerminalFlags flags;
  CLI::App parser;
  AddOptions(parser, options, flags);
  std::vector<Error> problems = CheckArguments(parser, arguments);
  if (problems.empty()) problems = Parse(parser, arguments);
  if (problems.empty() && flags.help) {
    terminal.PrintAnswer(Help(parser));
    return kDone;
  }
  terminal.SetLevel(flags);
  if (problems.empty() && (options.target.empty() || options.golden.empty())) {
    problems.push_back(MissingOption("A B", "give two dumps"));
  }
  if (!problems.empty()) {
    terminal.PrintErrors(problems);
    return kRefused;
  }
  CancelToken cancel;
  const InterruptScope interrupts(cancel);
  const Result<app::NarrowRun> run = app::Narrow(options, terminal, terminal, &cancel);
  if (!run.ok()) {
    terminal.PrintErrors({&run.error(), 1});
    const int signal = interrupts.signal();
    return signal != 0 ? kSignalBase + signal : StatusOf(run.error());
  }
  for (const std::string& note : run->notes) terminal.Warning(note);
  if (!flags.quiet) terminal.PrintAnswer(app::NarrowText(*run));
  terminal.PrintLine(fmt::format("narrow: 1 written, calls {}, entry {}, path {}",
                                 run->names.size(), run->entry, run->output));
  return kDone;
}

}  // namespace msprobe::cli
