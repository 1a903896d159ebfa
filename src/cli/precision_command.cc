#include "cli/precision_command.h"

#include <array>
#include <charconv>
#include <string_view>
#include <vector>

#include "app/json_lines.h"
#include "cli/fail_on.h"
#include "cli/names.h"
#include "cli/precision_args.h"
#include "cli/status.h"

namespace msprobe::cli {

std::optional<Error> ReadStandard(const std::string& value, app::Face face,
                                  precheck::Standard& out) {
  constexpr std::array<std::string_view, 2> kWords = {"old", "new"};
  if (value.empty()) {
    out = face == app::Face::kOld ? precheck::Standard::kOld : precheck::Standard::kNew;
  } else if (value == "old") {
    out = precheck::Standard::kOld;
  } else if (value == "new") {
    out = precheck::Standard::kNew;
  } else {
    return WrongValue("--standard", value, kWords);
  }
  return std::nullopt;
}

std::optional<Error> ReadPrecheckRules(const std::string& value, precheck::Rules& out) {
  constexpr std::array<std::string_view, 2> kSets = {"default", "base"};
  if (value == "default") {
    out = precheck::Rules::kDefault;
  } else if (value == "base") {
    out = precheck::Rules::kBase;
  } else {
    return WrongValue("--rules", value, kSets);
  }
  return std::nullopt;
}

std::optional<Error> ReadDigits(const std::string& value, precheck::NumberFormat& out) {
  if (value.empty()) return std::nullopt;
  int digits = -1;
  const char* end = value.data() + value.size();
  const auto r = std::from_chars(value.data(), end, digits);
  if (r.ec != std::errc() || r.ptr != end || digits < 0 || digits > 20) {
    return Error(ErrorCode::kInvalidArgument, "has no value '" + value + "'")
        .At("--digits")
        .Hint("a whole number from 0 to 20");
  }
  out.digits = digits;
  return std::nullopt;
}

int RunPrecision(std::span<const std::string> arguments, app::Face face, Terminal& terminal) {
  PrecisionArgs args;
  std::vector<Error> problems = ParsePrecisionArgs(arguments, face, args);
  if (problems.empty() && args.terminal.help) {
    terminal.PrintAnswer(PrecisionHelp(face));
    return kDone;
  }
  terminal.SetLevel(args.terminal);
  app::PrecisionOptions options;
  options.npu_csv = args.npu_csv;
  options.gpu_csv = args.gpu_csv;
  if (!args.output_dir.empty()) options.output_dir = args.output_dir;
  options.english = args.english;
  options.json_path = args.json_path;
  options.command = "api_precision_compare";
  options.echo = args.echo;
  FailOn fail_on;
  const auto add = [&](std::optional<Error> e) {
    if (e) problems.push_back(std::move(*e));
  };
  if (problems.empty()) {
    add(ReadStandard(args.standard, face, options.standard));
    add(ReadPrecheckRules(args.rules, options.rules));
    add(ReadDigits(args.digits, options.format));
    add(ReadFailOn(args.fail_on, "skip", fail_on));
  }
  if (!problems.empty()) {
    terminal.PrintErrors(problems);
    return kRefused;
  }
  if (args.explain_rules) {
    terminal.PrintAnswer(app::PrecheckRulesText(options.standard, options.rules));
    return kDone;
  }
  const Result<app::PrecisionRun> run = app::ComparePrecision(options, {terminal, terminal});
  if (!run.ok()) {
    terminal.PrintErrors({&run.error(), 1});
    return StatusOf(run.error());
  }
  if (!args.terminal.quiet && args.json_path != app::kStandardOutput)
    terminal.PrintAnswer(app::PrecisionAnswer(*run));
  terminal.PrintLine("api_precision_compare: " + app::PrecisionClosingLine(*run));
  app::StatusCounts both = run->forward;
  both.Add(run->backward);
  return fail_on.Reached(both.error, both.warning, both.skip) ? kFailOn : kDone;
}

}  // namespace msprobe::cli
