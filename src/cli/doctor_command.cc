#include "cli/doctor_command.h"

#include <algorithm>

#include "app/doctor_options.h"
#include "base/file.h"
#include "cli/options.h"
#include "cli/status.h"

namespace msprobe::cli {
namespace {

constexpr const char* kCommon = "Common";
constexpr const char* kHelp =
    "Look at this machine, and at what will and will not be collected of a script or model.\n\n"
    "Usage: msprobe doctor\n"
    "       msprobe doctor --config config.json\n"
    "       msprobe doctor --script train.py [options] [-- ARGUMENTS OF THE SCRIPT]\n"
    "       msprobe doctor --model MODULE:FACTORY [--config config.json]\n\n"
    "The script is run to the end of its first recorded step, twice: with its own settings, and "
    "with "
    "everything recorded;\n"
    "its dumps go to a temporary folder. FACTORY() returns (model, arguments) or (model, "
    "arguments, "
    "keywords); the model\n"
    "is called once, and its outputs are summed for a backward pass.\n\n";

void AddOptions(CLI::App& app, app::DoctorOptions& out, TerminalFlags& flags) {
  SetUp(app);
  app.add_option("--config", out.config_path, "a config.json to check, and to try with --model")
      ->type_name("FILE")
      ->group(kCommon);
  app.add_option("--script", out.script, "a script that uses PrecisionDebugger")
      ->type_name("FILE")
      ->group(kCommon);
  app.add_option("--model", out.model, "a function that makes a model and its inputs")
      ->type_name("MODULE:FACTORY")
      ->group(kCommon);
  app.add_option("--steps", out.steps,
                 "steps that will be recorded, for the size; those of the file when left out")
      ->type_name("N")
      ->check(CLI::Range(1, 1'000'000'000).description(""))
      ->group(kCommon);
  app.add_option("--ranks", out.ranks, "ranks that write to this disk, for the size")
      ->type_name("N")
      ->default_str("1")
      ->check(CLI::Range(1, 1'000'000).description(""))
      ->group(kCommon);
  app.add_option("--timeout", out.timeout, "seconds after which a trial is given up")
      ->type_name("N")
      ->default_str("600")
      ->check(CLI::Range(1, 86400).description(""))
      ->group(kCommon);
  app.add_flag("--json", out.json, "everything, as JSON")->group(kCommon);
  AddTerminalFlags(app, flags);
}

std::vector<Error> Check(const app::DoctorOptions& options) {
  std::vector<Error> out;
  for (const std::string& path : {options.config_path, options.script}) {
    if (path.empty()) continue;
    if (const auto file = InputFile::Open(path); !file.ok()) out.push_back(file.error());
  }
  const size_t colon = options.model.find(':');
  if (!options.model.empty() &&
      (colon == std::string::npos || colon == 0 || colon + 1 == options.model.size())) {
    out.push_back(Error(ErrorCode::kInvalidArgument, "is not MODULE:FACTORY")
                      .At("--model")
                      .Hint("as in my_models:make, for the function make of my_models.py"));
  }
  if (!options.model.empty() && !options.script.empty()) {
    out.push_back(Error(ErrorCode::kInvalidArgument, "does not go with --script")
                      .At("--model")
                      .Hint("leave one of them out"));
  }
  if (!options.script_args.empty() && options.script.empty()) {
    out.push_back(Error(ErrorCode::kInvalidArgument, "arguments without a script")
                      .At("--")
                      .Hint("give --script FILE"));
  }
  return out;
}

}  // namespace

std::vector<OptionShape> DoctorShape() {
  CLI::App parser;
  app::DoctorOptions options;
  TerminalFlags flags;
  AddOptions(parser, options, flags);
  return Shapes(parser);
}

int RunDoctor(std::span<const std::string> arguments, const Hooks& hooks, Terminal& terminal) {
  app::DoctorOptions options;
  TerminalFlags flags;
  CLI::App parser;
  AddOptions(parser, options, flags);
  const auto bars = std::find(arguments.begin(), arguments.end(), "--");
  if (bars != arguments.end()) options.script_args.assign(bars + 1, arguments.end());
  const auto own = arguments.first(static_cast<size_t>(bars - arguments.begin()));
  std::vector<Error> problems = CheckArguments(parser, own);
  if (problems.empty()) problems = Parse(parser, own);
  if (problems.empty() && flags.help) {
    terminal.PrintAnswer(kHelp + OptionHelp(parser, kCommon) +
                         "Exit status: 0 nothing stands in the way, 1 something does, 2 refused "
                         "before any work.\n");
    return kDone;
  }
  terminal.SetLevel(flags);
  if (problems.empty()) problems = Check(options);
  if (problems.empty() && !hooks.doctor) {
    problems.push_back(Error(ErrorCode::kUnsupported, "this program has no Python to look at")
                           .At("doctor")
                           .Hint("install the Python package, and use its msprobe"));
  }
  if (!problems.empty()) {
    terminal.PrintErrors(problems);
    return kRefused;
  }
  options.quiet = flags.quiet;
  options.debug = flags.debug;
  return hooks.doctor(app::ToJson(options));
}

}  // namespace msprobe::cli
