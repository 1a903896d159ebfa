#include "cli/init_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "app/init_app.h"
#include "cli/names.h"
#include "cli/options.h"
#include "cli/status.h"

namespace msprobe::cli {
namespace {

constexpr const char* kCommon = "Common";

std::vector<std::string_view> Words() {
  std::vector<std::string_view> out;
  for (const app::Purpose& p : app::Purposes()) out.push_back(p.name);
  return out;
}

void AddOptions(CLI::App& app, app::InitOptions& out, TerminalFlags& flags) {
  SetUp(app);
  std::string words;
  for (const std::string_view w : Words()) words += (words.empty() ? "" : "|") + std::string(w);
  app.add_option("purpose", out.purpose, "what the dump is for")
      ->type_name(words)
      ->group("Arguments");
  app.add_option("-o,--output", out.output, "the file to write")
      ->type_name("FILE")
      ->default_str("config.json")
      ->group(kCommon);
  app.add_option("--dump-path", out.dump_path, "its dump_path")
      ->type_name("DIR")
      ->default_str("./dump")
      ->group(kCommon);
  app.add_flag("--force", out.force, "replace the file when it is there")->group(kCommon);
  AddTerminalFlags(app, flags);
}

std::string Help(CLI::App& parser) {
  std::string out =
      "Write a commented config.json for PrecisionDebugger.\n\n"
      "Usage: msprobe init PURPOSE [-o config.json]\n\n"
      "Purposes:\n";
  for (const app::Purpose& p : app::Purposes())
    out += fmt::format("  {:<18}{}\n", p.name, p.summary);
  return out + "\n" + OptionHelp(parser, kCommon) +
         "Exit status: 0 done, 1 failed, 2 refused before any work.\n";
}

}  // namespace

std::vector<OptionShape> InitShape() {
  CLI::App parser;
  app::InitOptions options;
  TerminalFlags flags;
  AddOptions(parser, options, flags);
  return Shapes(parser);
}

int RunInit(std::span<const std::string> arguments, Terminal& terminal) {
  app::InitOptions options;
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
  const std::vector<std::string_view> words = Words();
  if (problems.empty() && options.purpose.empty()) {
    problems.push_back(
        MissingOption("PURPOSE", fmt::format("give one of: {}", fmt::join(words, " "))));
  } else if (problems.empty() &&
             std::find(words.begin(), words.end(), options.purpose) == words.end()) {
    problems.push_back(WrongValue("PURPOSE", options.purpose, words));
  }
  if (!problems.empty()) {
    terminal.PrintErrors(problems);
    return kRefused;
  }
  const Result<std::string> next = app::Init(options);
  if (!next.ok()) {
    terminal.PrintErrors({&next.error(), 1});
    return StatusOf(next.error());
  }
  if (!flags.quiet) terminal.PrintAnswer(*next);
  terminal.PrintLine(fmt::format("init: 1 written, path {}", options.output));
  return kDone;
}

}  // namespace msprobe::cli
