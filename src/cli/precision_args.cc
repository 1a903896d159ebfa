#include "cli/precision_args.h"

#include <fmt/format.h>

#include "cli/options.h"

namespace msprobe::cli {
namespace {

constexpr const char* kCommon = "Common";
constexpr const char* kVerdicts = "Verdicts and exit status";
constexpr const char* kReport = "Report";

void AddOptions(CLI::App& app, PrecisionArgs& out) {
  SetUp(app);
  app.add_option("--npu_csv_path", out.npu_csv,
                 "accuracy_checking_details_*.csv of the device under test")
      ->type_name("FILE")
      ->group(kCommon);
  app.add_option("--gpu_csv_path", out.gpu_csv, "the same of the device that serves as yardstick")
      ->type_name("FILE")
      ->group(kCommon);
  app.add_option("-o,--out_path", out.output_dir, "folder of the results, made when absent")
      ->type_name("DIR")
      ->expected(0, 1)
      ->default_str("./")
      ->group(kCommon);
  app.add_option(
         "--standard", out.standard,
         "limits of the old (run_ut) or new (acc_check) generation; the spelling's own when "
         "left out")
      ->type_name("old|new")
      ->group(kVerdicts);
  app.add_option("--rules", out.rules,
                 "base: the published rules; default: also findings of the pre-check's Q rules")
      ->type_name("SET")
      ->group(kVerdicts);
  app.add_option("--fail-on", out.fail_on,
                 "end with status 3 on error, warning (or error), skip; or a,b")
      ->type_name("VERDICT")
      ->group(kVerdicts);
  app.add_flag("--explain-rules", out.explain_rules, "print algorithms and limits, and end")
      ->group(kVerdicts);
  app.add_option("--digits", out.digits,
                 "decimals of numbers, 0 to 20; 17 significant digits when left out; 14 is what "
                 "earlier releases wrote")
      ->type_name("N")
      ->group(kReport);
  app.add_option("--json", out.json_path,
                 "also every row of the details as one line of JSON; - is standard output")
      ->type_name("FILE")
      ->group(kReport);
  app.add_flag("--english", out.english, "English column titles")->group(kReport);
  AddTerminalFlags(app, out.terminal);
}

}  // namespace

std::vector<Error> ParsePrecisionArgs(std::span<const std::string> arguments, app::Face face,
                                      PrecisionArgs& out) {
  out.face = face;
  CLI::App app;
  AddOptions(app, out);
  std::vector<Error> problems = CheckArguments(app, arguments);
  if (problems.empty()) problems = Parse(app, arguments);
  if (!problems.empty() || out.terminal.help || out.explain_rules) return problems;
  if (out.npu_csv.empty())
    problems.push_back(MissingOption("-npu", "give the details file of the device under test"));
  if (out.gpu_csv.empty())
    problems.push_back(MissingOption("-gpu", "give the details file of the other device"));
  out.echo = Echo(app);
  return problems;
}

std::string PrecisionHelp(app::Face face) {
  PrecisionArgs unused;
  CLI::App app;
  AddOptions(app, unused);
  return fmt::format(
             "Judge the pre-check of one device by that of another.\n\n"
             "Usage: msprobe {}api_precision_compare -npu FILE -gpu FILE [-o DIR] [options]\n\n"
             "Rows are joined by API name; the errors of the first file may be so many times those "
             "of the second. Writes\n"
             "api_precision_compare_details_*.csv, …_result_*.csv and …_summary_*.json.\n\n",
             face == app::Face::kOld ? "-f pytorch " : "") +
         OptionHelp(app, kCommon) +
         "Exit status: 0 done, 1 failed, 2 refused before any work, 3 --fail-on reached.\n";
}

std::vector<OptionShape> PrecisionShape() {
  PrecisionArgs args;
  CLI::App parser;
  AddOptions(parser, args);
  return Shapes(parser);
}

}  // namespace msprobe::cli
