#include "cli/compare_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "app/analysis_app.h"
#include "app/compare_app.h"
#include "app/compare_items.h"
#include "app/compare_summary.h"
#include "app/culprit_app.h"
#include "app/json_lines.h"
#include "app/layout_app.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/compare_args.h"
#include "cli/fail_on.h"
#include "cli/names.h"
#include "cli/options.h"
#include "cli/status.h"
#include "config/compare_config.h"
#include "config/postprocess_config.h"

namespace msprobe::cli {
namespace {

using app::Face;
using app::RuleSet;

std::optional<Error> ReadRules(const std::string& value, app::CompareOptions& out, LogSink& log) {
  constexpr std::array<std::string_view, 3> kSets = {"default", "base", "upstream"};
  if (value == "default") {
    out.rules = RuleSet::kDefault;
  } else if (value == "base") {
    out.rules = RuleSet::kBase;
  } else if (value == "upstream") {
    out.rules = RuleSet::kUpstream;
  } else if (value.ends_with(".yaml") || value.ends_with(".yml")) {
    Result<config::RuleFile> file = config::ReadRuleFile(value, log);
    if (!file.ok()) return std::move(file).error();
    out.rules = RuleSet::kDefault;
    out.rule_file = std::make_shared<const config::RuleFile>(std::move(file).value());
  } else {
    return WrongValue("--rules", value, kSets);
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

// `option` was given and changes nothing beside `other`.
void CheckIdle(bool given, std::string_view option, std::string_view other,
               std::vector<Error>& problems) {
  if (!given) return;
  problems.push_back(
      Error(ErrorCode::kInvalidArgument, fmt::format("has no effect beside {}", other))
          .At(std::string(option))
          .Hint("leave one of them out"));
}

void CheckMappings(const CompareArgs& args, std::vector<Error>& problems) {
  if (args.cell_mapping && args.face == Face::kOld) {
    problems.push_back(Error(ErrorCode::kUnsupported, "is not for PyTorch dumps in this spelling")
                           .At("-cm")
                           .Hint("leave it out, or write: msprobe compare -tp … -gp … -cm FILE"));
  }
  const std::string_view fuzzy = args.face == Face::kOld ? "-f" : "-fm";
  for (const auto& [given, option] :
       {std::pair(args.api_mapping.has_value(), "-am"), {args.layer_mapping.has_value(), "-lm"}}) {
    if (args.fuzzy) CheckIdle(given, option, fuzzy, problems);
    if (args.data_mapping) CheckIdle(given, option, "-dm", problems);
  }
  if (args.layer_mapping) {
    CheckIdle(args.api_mapping.has_value(), "-am", "-lm", problems);
    CheckIdle(args.cell_mapping.has_value(), "-cm", "-lm", problems);
  }
}

void ReadBackend(const CompareArgs& args, app::Backend& out, std::vector<Error>& problems) {
  constexpr std::array<std::string_view, 2> kBackends = {"fsdp", "megatron"};
  if (!args.consistent_check) return;  // --backend alone is ignored, as upstream does
  if (args.backend.empty()) {
    problems.push_back(Error(ErrorCode::kInvalidArgument, "is required")
                           .At("--backend")
                           .Hint("give fsdp or megatron with --consistent_check"));
  } else if (args.backend == "fsdp") {
    out = app::Backend::kFsdp;
  } else if (args.backend == "megatron") {
    out = app::Backend::kMegatron;
  } else {
    problems.push_back(WrongValue("--backend", args.backend, kBackends));
  }
  for (const auto& [given, option] : {std::pair(args.fuzzy, "-fm"),
                                      {args.diff_analyze, "-da"},
                                      {args.data_mapping.has_value(), "-dm"},
                                      {args.cell_mapping.has_value(), "-cm"},
                                      {args.api_mapping.has_value(), "-am"},
                                      {args.layer_mapping.has_value(), "-lm"}}) {
    CheckIdle(given, option, "--consistent_check", problems);
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

// The files of -am and -lm, or the flags alone.
void ReadModuleMaps(const CompareArgs& args, app::CompareOptions& out, LogSink& log,
                    std::vector<Error>& problems) {
  out.api_mapping_flag = args.api_mapping.has_value();
  if (args.api_mapping && !args.api_mapping->empty()) {
    Result<config::ApiMap> map = config::ReadApiMapYaml(*args.api_mapping, log);
    if (map.ok()) {
      out.api_mapping = std::move(map).value();
    } else {
      problems.push_back(std::move(map).error());
    }
  }
  if (!args.layer_mapping) return;
  out.layer_mapping.emplace();
  if (args.layer_mapping->empty()) return;
  Result<config::LayerMap> map = config::ReadLayerMapYaml(*args.layer_mapping);
  if (map.ok()) {
    out.layer_mapping = std::move(map).value();
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
  // Options win over the file.
  if (out.rank_ids.empty()) out.rank_ids = input->rank_ids;
  if (out.step_ids.empty()) out.step_ids = input->step_ids;
}

// Options of both spellings that say more than upstream's, except --config.
void ReadExtras(const CompareArgs& args, app::CompareOptions& out, LogSink& log,
                std::vector<Error>& problems) {
  out.json_path = args.json_path;
  out.resume = args.resume;
  out.rank_ids = args.ranks;
  out.step_ids = args.steps;
  out.junit_path = args.junit_path;
  out.memory_limit = ReadMemoryLimit(args.memory_limit, problems);
  if (args.diff_analyze && args.resume) {
    problems.push_back(Error(ErrorCode::kInvalidArgument, "has nothing to take over for -da")
                           .At("--resume")
                           .Hint("leave one of them out"));
  }
  if (args.diff_analyze) {
    if (!args.junit_path.empty()) {
      problems.push_back(Error(ErrorCode::kInvalidArgument, "has no rows to write beside -da")
                             .At("--junit")
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

EngineChoice ReadEngine(const CompareArgs& args, const Hooks& hooks, app::CompareOptions& out,
                        std::vector<Error>& problems) {
  const EngineChoice choice = CheckEngine(args.engine, hooks, problems);
  if (!choice.ray) out.workers = choice.workers;
  constexpr uint64_t kMost = 1 << 20;
  uint64_t mib = 0;
  const std::string& text = args.engine.block_mib;
  const auto r = std::from_chars(text.data(), text.data() + text.size(), mib);
  if (r.ec != std::errc() || r.ptr != text.data() + text.size() || mib < 1 || mib > kMost) {
    problems.push_back(Error(ErrorCode::kInvalidArgument, fmt::format("has no value '{}'", text))
                           .At("--block-mib")
                           .Hint(fmt::format("a whole number from 1 to {}", kMost)));
  }
  out.block_bytes = mib << 20;
  if (choice.ray) CheckIdle(args.resume, "--resume", "--engine ray", problems);
  if (!args.layout.empty()) {
    CheckIdle(choice.ray, "--engine ray", "--layout", problems);
    CheckIdle(args.diff_analyze, "-da", "--layout", problems);
    CheckIdle(args.resume, "--resume", "--layout", problems);
    if (!IsDirectory(out.target)) {
      problems.push_back(Error(ErrorCode::kInvalidArgument, "joins the ranks of step folders")
                             .At("--layout")
                             .Hint("give two step folders with their ranks"));
    }
  }
  return choice;
}

// Last of all options: it runs the user's files.
void ReadMetrics(const CompareArgs& args, const Hooks& hooks, app::CompareOptions& out,
                 std::vector<Error>& problems) {
  if (args.metrics.empty()) return;
  for (const auto& [given, other] :
       {std::pair(args.diff_analyze, "-da"), {args.consistent_check, "--consistent_check"}}) {
    if (!given) continue;
    CheckIdle(given, "--metrics", other, problems);
    return;
  }
  if (!hooks.metrics) {
    problems.push_back(
        Error(ErrorCode::kUnsupported, "runs Python files, and this executable is without Python")
            .At("--metrics")
            .Hint("use the msprobe command of the Python package"));
    return;
  }
  auto metrics = hooks.metrics(args.metrics);
  if (metrics.ok()) {
    out.user_metrics = std::move(metrics).value();
  } else {
    problems.push_back(std::move(metrics).error());
  }
}

// What needs the search for the operator at fault asks for it.
void ReadCulprit(const CompareArgs& args, const FailOn& fail_on, app::CompareOptions& out,
                 std::vector<Error>& problems) {
  out.loss_impact = args.loss_impact;
  const bool wanted = args.culprit || args.loss_impact || fail_on.culprit;
  if (wanted) out.culprit = app::CulpritChoice::kOn;
  if (args.no_culprit) out.culprit = app::CulpritChoice::kOff;
  for (const auto& [given, option] : {std::pair(args.culprit, "--culprit"),
                                      {args.loss_impact, "--loss-impact"},
                                      {fail_on.culprit, "--fail-on culprit"}}) {
    if (!given || !args.no_culprit) continue;
    problems.push_back(Error(ErrorCode::kInvalidArgument, "contradicts --no-culprit")
                           .At(option)
                           .Hint("leave one of them out"));
  }
  if (args.diff_analyze && fail_on.culprit) CheckIdle(true, "--fail-on culprit", "-da", problems);
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
  out.html = args.html || (args.face == Face::kNew && !args.no_html && app::WritesHtml());
  if (args.html && args.no_html) {
    problems.push_back(Error(ErrorCode::kInvalidArgument, "contradicts --no-html")
                           .At("--html")
                           .Hint("leave one of them out"));
  }
  if (auto e = ReadRules(args.rules, out, log)) problems.push_back(std::move(*e));
  if (auto e = ReadFailOn(args.fail_on, "unmatched", fail_on, Searches::kCulprit))
    problems.push_back(std::move(*e));
  ReadCulprit(args, fail_on, out, problems);
  CheckMode(args, problems);
  CheckMappings(args, problems);
  ReadBackend(args, out.backend, problems);
  ReadMapping(args.data_mapping, out.data_mapping, problems);
  ReadModuleMaps(args, out, log, problems);
  if (args.face == Face::kNew) {
    ReadMapping(args.cell_mapping, out.cell_mapping, problems);
    out.cell_mapping_flag = args.cell_mapping.has_value();
  }
  ReadExtras(args, out, log, problems);
  ReadInput(args, out, log, problems);
  ReadCulpritArgs(args.search, out, problems);
  if (problems.empty()) {
    for (Error& e : app::CheckComparePaths(out.target, out.golden)) {
      problems.push_back(std::move(e));
      if (args.search.one_dump) break;  // both are the one
    }
  }
  return out;
}

constexpr std::string_view kNothingWritten = "interrupted; nothing was written";

int Finish(const app::CompareOptions& options, const app::CompareRun& run, const FailOn& fail_on,
           const Attended& attended) {
  Terminal& terminal = attended.terminal;
  if (run.counts.unmatched == run.counts.total) {
    terminal.Warning(
        "no row has a partner that it can be compared with: are these dumps of the same model and "
        "step?");
  }
  if (!attended.quiet) terminal.PrintAnswer(app::AnswerText(options, run));
  terminal.PrintLine("compare: " + app::ClosingLine(options, run));
  const bool begun = std::any_of(run.ranks.begin(), run.ranks.end(),
                                 [](const app::RankOutcome& r) { return r.interrupted; });
  const bool interrupted =
      begun || std::any_of(run.ranks.begin(), run.ranks.end(), [](const app::RankOutcome& r) {
        return r.error && r.error->code == ErrorCode::kCancelled;
      });
  if (interrupted) {
    terminal.PrintLine(begun ? "interrupted; what was compared is kept, the same command with "
                               "--resume goes on from there"
                             : "interrupted; the reports of finished ranks are kept");
    return attended.interrupts.status();
  }
  if (run.search_interrupted) {
    terminal.PrintLine(
        "interrupted; the reports are whole, the culprit was not searched to the end");
    return attended.interrupts.status();
  }
  if (run.partial) return kFailed;
  const bool culprit = fail_on.culprit && !app::FoundNoCulprit(run);
  const bool rows = fail_on.Reached(run.counts.error, run.counts.warning, run.counts.unmatched);
  return culprit || rows ? kFailOn : kDone;
}

// -da: the search for the first difference instead of reports.
int Analyze(const app::CompareOptions& options, const FailOn& fail_on, const Attended& attended) {
  Terminal& terminal = attended.terminal;
  const Result<app::AnalysisRun> run =
      app::AnalyzeDifferences(options, terminal, terminal, &attended.cancel);
  if (!run.ok()) return EndWithError(run.error(), attended.interrupts, terminal, kNothingWritten);
  if (!attended.quiet) terminal.PrintAnswer(app::AnalysisAnswer(*run));
  terminal.PrintLine("compare: " + app::AnalysisClosingLine(*run));
  if (run->interrupted) {
    terminal.PrintLine("interrupted; only the ranks that were finished were searched");
    return attended.interrupts.status();
  }
  if (run->partial) return kFailed;
  return fail_on.error && !run->first.empty() ? kFailOn : kDone;
}

}  // namespace

int RunCompare(std::span<const std::string> arguments, Face face, const Hooks& hooks,
               Terminal& terminal) {
  CompareArgs args;
  std::vector<Error> problems = ParseCompareArgs(arguments, face, args);
  if (problems.empty() && args.terminal.help) {
    terminal.PrintAnswer(CompareHelp(face));
    return kDone;
  }
  if (problems.empty() && args.explain_rules) {
    terminal.PrintAnswer(app::RulesText());
    return kDone;
  }
  terminal.SetLevel(args.terminal);
  FailOn fail_on;
  app::CompareOptions options;
  if (problems.empty()) options = MakeOptions(args, terminal, fail_on, problems);
  const EngineChoice choice = ReadEngine(args, hooks, options, problems);
  if (problems.empty()) ReadMetrics(args, hooks, options, problems);
  if (!problems.empty()) {
    terminal.PrintErrors(problems);
    return kRefused;
  }
  const bool quiet = args.terminal.quiet || args.json_path == app::kStandardOutput;
  CancelToken cancel;
  const InterruptScope interrupts(cancel);
  const Attended attended = {terminal, interrupts, cancel, quiet};
  if (hooks.replay)
    options.replay = [&](const std::string& jobs) { return hooks.replay(jobs, cancel); };
  const EngineCommand command = {
      face == Face::kOld, "compare", {arguments.begin(), arguments.end()}};
  const std::unique_ptr<app::Engine> engine = MakeEngine(choice, args.engine, hooks, command);
  options.engine = engine.get();
  if (args.search.alone()) return RunCulpritAlone(args.search, options, fail_on, attended);
  if (args.diff_analyze) return Analyze(options, fail_on, attended);
  const Result<app::CompareRun> run =
      args.layout.empty()
          ? app::Compare(options, terminal, terminal, &cancel)
          : app::CompareWithLayout(options, args.layout, terminal, terminal, &cancel);
  if (!run.ok()) return EndWithError(run.error(), interrupts, terminal, kNothingWritten);
  return Finish(options, *run, fail_on, attended);
}

Status RunCompareItem(const EngineCommand& command, std::string_view payload,
                      const app::ItemContext& context, const Hooks& hooks) {
  CompareArgs args;
  FailOn fail_on;
  app::CompareOptions options;
  std::vector<Error> problems =
      ParseCompareArgs(command.arguments, command.old_face ? Face::kOld : Face::kNew, args);
  if (problems.empty()) options = MakeOptions(args, NullLog(), fail_on, problems);
  if (problems.empty()) ReadMetrics(args, hooks, options, problems);
  if (!problems.empty()) return std::move(problems.front());
  const CancelToken cancel;
  if (hooks.replay)
    options.replay = [&](const std::string& jobs) { return hooks.replay(jobs, cancel); };
  if (args.diff_analyze) return app::RunDifferenceItem(std::move(options), payload, context);
  return app::RunCompareItem(std::move(options), payload, context);
}

}  // namespace msprobe::cli
