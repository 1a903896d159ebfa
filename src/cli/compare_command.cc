#include "cli/compare_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "app/analysis_app.h"
#include "app/compare_app.h"
#include "app/compare_summary.h"
#include "base/text.h"
#include "cli/compare_args.h"
#include "cli/names.h"
#include "cli/options.h"
#include "cli/status.h"
#include "config/compare_config.h"
#include "config/postprocess_config.h"

namespace msprobe::cli {
namespace {

using app::Face;
using app::RuleSet;

struct FailOn {
  bool error = false, warning = false, unmatched = false;
  bool Reached(const app::Counts& c) const {
    return (error && c.error > 0) || (warning && c.warning > 0) || (unmatched && c.unmatched > 0);
  }
};

std::optional<Error> ReadRules(const std::string& value, RuleSet& out) {
  constexpr std::array<std::string_view, 3> kSets = {"default", "base", "upstream"};
  if (value == "default" || value == "base") {
    out = RuleSet::kBase;  // default adds its rules later; until then it is base and says so in
                           // --help
  } else if (value == "upstream") {
    out = RuleSet::kUpstream;
  } else if (value.ends_with(".yaml") || value.ends_with(".yml")) {
    return Error(ErrorCode::kUnsupported, "this build does not read rule files yet")
        .At("--rules")
        .Hint("use base or upstream");
  } else {
    return WrongValue("--rules", value, kSets);
  }
  return std::nullopt;
}

std::optional<Error> ReadFailOn(const std::string& value, FailOn& out) {
  constexpr std::array<std::string_view, 3> kWords = {"error", "warning", "unmatched"};
  for (std::string_view rest = value; !rest.empty();) {
    const size_t comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    if (word == "error") {
      out.error = true;
    } else if (word == "warning") {
      out.error = out.warning = true;
    } else if (word == "unmatched") {
      out.unmatched = true;
    } else {
      return WrongValue("--fail-on", word, kWords);
    }
  }
  return std::nullopt;
}

void CheckMode(const CompareArgs& args, std::vector<Error>& problems) {
  constexpr std::array<std::string_view, 5> kModes = {"auto", "offline_data", "torchair",
                                                      "offline_model", "atb"};
  if (args.mode == "auto") return;
  if (std::find(kModes.begin(), kModes.end(), args.mode) != kModes.end()) {
    problems.push_back(PlannedError("--mode " + args.mode));
  } else {
    problems.push_back(WrongValue("--mode", args.mode, kModes));
  }
}

void CheckMappings(const CompareArgs& args, std::vector<Error>& problems) {
  if (args.api_mapping) {
    problems.push_back(Error(ErrorCode::kUnsupported, "is not for PyTorch dumps")
                           .At("-am")
                           .Hint("leave it out; -dm pairs rows by a mapping file"));
  }
  if (args.cell_mapping && args.face == Face::kOld) {
    problems.push_back(Error(ErrorCode::kUnsupported, "is not for PyTorch dumps in this spelling")
                           .At("-cm")
                           .Hint("leave it out, or write: msprobe compare -tp … -gp … -cm FILE"));
  }
}

void ReadMapping(const std::optional<std::string>& path, std::optional<config::NameMap>& out,
                 std::vector<Error>& problems) {
  if (!path || path->empty()) return;
  Result<config::NameMap> map = config::ReadNameMapYaml(*path);
  if (map.ok()) {
    out = std::move(map).value();
  } else {
    problems.push_back(std::move(map).error());
  }
}

// compare.json of the old spelling names the two dumps.
void ReadInput(const CompareArgs& args, app::CompareOptions& out, LogSink& log,
               std::vector<Error>& problems) {
  if (args.face == Face::kNew) {
    out.target = args.target_path;
    out.golden = args.golden_path;
    out.row_log = args.row_log;
    return;
  }
  Result<config::CompareInput> input = config::ReadCompareJson(args.input_path, log);
  if (!input.ok()) {
    problems.push_back(std::move(input).error());
    return;
  }
  out.target = input->target_path;
  out.golden = input->golden_path;
  out.stack_path = input->stack_path;
  out.row_log = input->print_row_log.value_or(false);
}

// Options of both spellings that say more than upstream's, except --config.
void ReadExtras(const CompareArgs& args, app::CompareOptions& out, LogSink& log,
                std::vector<Error>& problems) {
  out.json_path = args.json_path;
  out.junit_path = args.junit_path;
  if (args.diff_analyze) {
    for (const auto& [path, option] :
         {std::pair(&args.json_path, "--json"), {&args.junit_path, "--junit"}}) {
      if (path->empty()) continue;
      problems.push_back(Error(ErrorCode::kInvalidArgument, "has no rows to write beside -da")
                             .At(option)
                             .Hint("leave one of them out"));
    }
  }
  if (args.config_path.empty()) return;
  Result<config::PostprocessConfig> config = config::ReadPostprocessConfig(args.config_path, log);
  if (config.ok()) {
    out.postprocess = std::move(config).value();
  } else {
    problems.push_back(std::move(config).error());
  }
}

app::CompareOptions MakeOptions(const CompareArgs& args, LogSink& log, FailOn& fail_on,
                                std::vector<Error>& problems) {
  app::CompareOptions out;
  out.face = args.face;
  out.output_dir = args.output_path.empty() ? "./output" : args.output_path;
  out.stack_mode = args.stack_mode;
  out.advisor = !args.compare_only;
  out.highlight = args.highlight;
  out.xlsx = args.xlsx;
  out.fuzzy = args.fuzzy;
  out.command = "compare";
  out.echo = args.echo;
  if (auto e = ReadRules(args.rules, out.rules)) problems.push_back(std::move(*e));
  if (auto e = ReadFailOn(args.fail_on, fail_on)) problems.push_back(std::move(*e));
  CheckMode(args, problems);
  CheckMappings(args, problems);
  ReadMapping(args.data_mapping, out.data_mapping, problems);
  if (args.face == Face::kNew) {
    ReadMapping(args.cell_mapping, out.cell_mapping, problems);
    out.cell_mapping_flag = args.cell_mapping.has_value();
  }
  ReadExtras(args, out, log, problems);
  ReadInput(args, out, log, problems);
  if (problems.empty()) {
    for (Error& e : app::CheckComparePaths(out.target, out.golden))
      problems.push_back(std::move(e));
  }
  return out;
}

int FinishError(const Error& error, int signal, Terminal& terminal) {
  if (error.code == ErrorCode::kCancelled) {
    terminal.PrintLine("interrupted; nothing was written");
    return kSignalBase + (signal != 0 ? signal : 2);
  }
  terminal.PrintErrors({&error, 1});
  return StatusOf(error);
}

int Finish(const app::CompareOptions& options, const app::CompareRun& run, const FailOn& fail_on,
           int signal, bool quiet, Terminal& terminal) {
  if (run.counts.unmatched == run.counts.total) {
    terminal.Warning(
        "no row has a partner that it can be compared with: are these dumps of the same model and "
        "step?");
  }
  if (!quiet) terminal.PrintAnswer(app::AnswerText(options, run));
  terminal.PrintLine("compare: " + app::ClosingLine(options, run));
  const bool interrupted = std::any_of(
      run.ranks.begin(), run.ranks.end(),
      [](const app::RankOutcome& r) { return r.error && r.error->code == ErrorCode::kCancelled; });
  if (interrupted) {
    terminal.PrintLine("interrupted; the reports of finished ranks are kept");
    return kSignalBase + (signal != 0 ? signal : 2);
  }
  if (run.partial) return kFailed;
  return fail_on.Reached(run.counts) ? kFailOn : kDone;
}

// -da: the search for the first difference instead of reports.
int Analyze(const app::CompareOptions& options, const FailOn& fail_on,
            const InterruptScope& interrupts, const CancelToken& cancel, bool quiet,
            Terminal& terminal) {
  const Result<app::AnalysisRun> run =
      app::AnalyzeDifferences(options, terminal, terminal, &cancel);
  if (!run.ok()) return FinishError(run.error(), interrupts.signal(), terminal);
  if (!quiet) terminal.PrintAnswer(app::AnalysisAnswer(*run));
  terminal.PrintLine("compare: " + app::AnalysisClosingLine(*run));
  if (run->partial) return kFailed;
  return fail_on.error && !run->first.empty() ? kFailOn : kDone;
}

}  // namespace

int RunCompare(std::span<const std::string> arguments, Face face, Terminal& terminal) {
  CompareArgs args;
  std::vector<Error> problems = ParseCompareArgs(arguments, face, args);
  if (problems.empty() && args.terminal.help) {
    terminal.PrintAnswer(CompareHelp(face));
    return kDone;
  }
  terminal.SetLevel(args.terminal);
  FailOn fail_on;
  app::CompareOptions options;
  if (problems.empty()) options = MakeOptions(args, terminal, fail_on, problems);
  if (!problems.empty()) {
    terminal.PrintErrors(problems);
    return kRefused;
  }
  if (args.layer_mapping) {
    terminal.Warning("-lm has no effect on PyTorch dumps and is ignored");
  }
  CancelToken cancel;
  const InterruptScope interrupts(cancel);
  if (args.diff_analyze) {
    return Analyze(options, fail_on, interrupts, cancel, args.terminal.quiet, terminal);
  }
  const Result<app::CompareRun> run = app::Compare(options, terminal, terminal, &cancel);
  if (!run.ok()) return FinishError(run.error(), interrupts.signal(), terminal);
  return Finish(options, *run, fail_on, interrupts.signal(), args.terminal.quiet, terminal);
}

}  // namespace msprobe::cli
