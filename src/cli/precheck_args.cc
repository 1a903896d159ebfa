#include "cli/precheck_args.h"

#include <fmt/format.h>

#include "cli/options.h"

namespace msprobe::cli {
namespace {

constexpr const char* kCommon = "Common";
constexpr const char* kInputs = "What runs";
constexpr const char* kDevice = "Device";
constexpr const char* kVerdicts = "Verdicts and exit status";
constexpr const char* kReport = "Report";

void AddCommon(CLI::App& app, PrecheckArgs& out) {
  app.add_option("--api_info_file", out.api_info, "dump.json to replay")
      ->type_name("FILE")
      ->group(kCommon);
  app.add_option("-o,--out_path", out.output_dir, "folder of the results, made when absent")
      ->type_name("DIR")
      ->expected(0, 1)
      ->default_str("./")
      ->group(kCommon);
  app.add_option("--result_csv_path", out.csv_path,
                 "go on with this accuracy_checking_result_*.csv: APIs in it are passed over")
      ->type_name("FILE")
      ->group(kCommon);
  app.add_flag("--retry-skips", out.retry_skips, "with -csv_path: run APIs that were SKIP again")
      ->group(kCommon);
  if (out.multi) {
    app.add_option("-n,--num_splits", out.num_splits, "worker processes, 1 to 64")
        ->type_name("N")
        ->default_str("8")
        ->group(kCommon);
    app.add_option("--timeout", out.timeout, "seconds after which an API is given up as SKIP")
        ->type_name("SECONDS")
        ->group(kCommon);
  }
  app.add_option("--config_path", out.config_path,
                 "config.json whose section run_ut or acc_check holds white_list, black_list and "
                 "error_data_path")
      ->type_name("FILE")
      ->group(kInputs);
  app.add_flag("-f,--filter_api", out.filter_api, "drop repeated calls")->group(kInputs);
  app.add_option("--seed", out.seed, "of random inputs; 1234 when left out")
      ->type_name("N")
      ->group(kInputs);
  app.add_option("--candidate", out.candidate,
                 "function(full_name, real, args, kwargs) that is called in place of every device "
                 "call")
      ->type_name("MODULE:FUNCTION")
      ->group(kInputs);
}

void AddDevice(CLI::App& app, PrecheckArgs& out) {
  app.add_option("--device", out.device_kind,
                 "npu, cuda, cpu or auto; NPU, then CUDA, when left out")
      ->type_name("KIND")
      ->group(kDevice);
  app.add_option("-d,--device_id", out.device_ids,
                 out.multi ? "device numbers, dealt to the workers in turn" : "device number")
      ->type_name("ID")
      ->expected(1, 64)
      ->default_str("0")
      ->group(kDevice);
  app.add_flag("-j,--jit_compile", out.jit_compile, "NPU: compile operators just in time")
      ->group(kDevice);
  app.add_option("--reference", out.reference,
                 "auto: one step above the recorded precision; f64: always float64")
      ->type_name("auto|f64")
      ->group(kDevice);
  app.add_flag("--tf32", out.tf32, "CUDA: allow TF32 and reduced-precision sums")->group(kDevice);
}

void AddVerdicts(CLI::App& app, PrecheckArgs& out) {
  app.add_option("--standard", out.standard,
                 "algorithms of the old (run_ut) or new (acc_check) generation; the spelling's own "
                 "when left out")
      ->type_name("old|new")
      ->group(kVerdicts);
  app.add_option("--rules", out.rules,
                 "base: the published rules; default: also the Q rules, see --explain-rules")
      ->type_name("SET")
      ->group(kVerdicts);
  app.add_option("--fail-on", out.fail_on,
                 "end with status 3 on error, warning (or error), skip; or a,b")
      ->type_name("VERDICT")
      ->group(kVerdicts);
  app.add_flag("--explain-rules", out.explain_rules, "print algorithms and limits, and end")
      ->group(kVerdicts);
  app.add_flag("--save_error_data", out.save_error_data,
               "keep inputs and outputs of APIs that did not pass in error_data_path")
      ->group(kReport);
  app.add_option("--digits", out.digits,
                 "decimals of numbers, 0 to 20; 17 significant digits when left out; 14 is what "
                 "earlier releases wrote")
      ->type_name("N")
      ->group(kReport);
  app.add_flag("--english", out.english, "English column titles")->group(kReport);
}

void AddOptions(CLI::App& app, PrecheckArgs& out) {
  SetUp(app);
  AddCommon(app, out);
  AddDevice(app, out);
  AddVerdicts(app, out);
  AddTerminalFlags(app, out.terminal);
}

}  // namespace

std::vector<Error> ParsePrecheckArgs(std::span<const std::string> arguments, PrecheckArgs& out) {
  CLI::App app;
  AddOptions(app, out);
  std::vector<Error> problems = CheckArguments(app, arguments);
  if (problems.empty()) problems = Parse(app, arguments);
  if (!problems.empty() || out.terminal.help || out.explain_rules) return problems;
  if (out.api_info.empty())
    problems.push_back(MissingOption("-api_info", "give the dump.json to replay"));
  out.echo = Echo(app);
  return problems;
}

std::string PrecheckHelp(const PrecheckArgs& args) {
  PrecheckArgs unused;
  unused.multi = args.multi;
  CLI::App app;
  AddOptions(app, unused);
  return fmt::format(
             "Replay every API of a dump on a device and on the CPU in higher precision, and judge "
             "the difference.\n\n"
             "Usage: msprobe {}{} -api_info dump.json [-o DIR] [options]\n\n"
             "Writes accuracy_checking_result_*.csv (a line per API), "
             "accuracy_checking_details_*.csv "
             "(a line per output),\n"
             "and beside them …_summary_*.json and …_meta_*.json.\n\n",
             args.face == app::Face::kOld ? "-f pytorch " : "", args.command) +
         OptionHelp(app, kCommon) +
         "Exit status: 0 done whatever the verdicts, 1 failed or done in part, 2 refused before "
         "any "
         "work, 3 --fail-on reached, 130 interrupted.\n";
}

}  // namespace msprobe::cli
