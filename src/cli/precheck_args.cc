#include "cli/precheck_args.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cli/names.h"
#include "cli/options.h"

namespace msprobe::cli {
namespace {

constexpr const char* kCommon = "Common";
constexpr const char* kInputs = "What runs";
constexpr const char* kDevice = "Device";
constexpr const char* kVerdicts = "Verdicts and exit status";
constexpr const char* kReport = "Report";
constexpr std::string_view kOverflowCommand = "run_overflow_check";
constexpr std::string_view kGenerateCommand = "op_generate";

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
    AddEngineOptions(app, out.engine, kCommon);
    app.add_option("--timeout", out.timeout, "seconds after which an API is given up as SKIP")
        ->type_name("SECONDS")
        ->group(kCommon);
  }
  app.add_option("--memory-limit", out.memory_limit,
                 out.multi ? "memory for the tensors of all workers together: calls wait for room, "
                             "one that needs more is SKIP; this machine's when left out"
                           : "memory for the tensors of a call: one that needs more is SKIP; this "
                             "machine's when left out")
      ->type_name("SIZE")
      ->group(kCommon);
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
  if (!out.multi) {
    app.add_option("--reproduce", out.reproduce,
                   "write a stand-alone script and its data for the call NAME (Torch.matmul.0) "
                   "instead of a run")
        ->type_name("NAME")
        ->group(kInputs);
  }
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
  app.add_option("--baseline", out.baseline,
                 "final verdict in the same run against the CPU in the recorded dtypes (cpu) or "
                 "another machine's accuracy_checking_details_*.csv; cpu on NPU and CUDA with the "
                 "new spelling, else none, when left out")
      ->type_name("none|cpu|FILE")
      ->group(kDevice);
  app.add_flag("--tf32", out.tf32, "CUDA: allow TF32 and reduced-precision sums")->group(kDevice);
}

void AddJson(CLI::App& app, std::string_view rows, PrecheckArgs& out) {
  app.add_option("--json", out.json_path,
                 fmt::format("also every {} as one line of JSON; - is standard output", rows))
      ->type_name("FILE")
      ->group(kReport);
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
  app.add_option("--small-values", out.small_values,
                 "tolerance of small 16-bit values: original (1e-16, as the original tool has it) "
                 "or corrected (2^-16, as its documents say)")
      ->type_name("TABLE")
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
  AddJson(app, "row of the details", out);
  app.add_flag("--english", out.english, "English column titles")->group(kReport);
  app.add_flag("--no-html", out.no_html,
               "newer spelling: no accuracy_checking_report_*.html beside the details")
      ->group(kReport);
}

void AddDeviceKind(CLI::App& app, PrecheckArgs& out) {
  app.add_option("--device", out.device_kind,
                 "npu, cuda, cpu or auto; NPU, then CUDA, when left out")
      ->type_name("KIND")
      ->group(kDevice);
}

void AddOverflowOptions(CLI::App& app, PrecheckArgs& out) {
  app.add_option("--api_info_file", out.api_info, "dump.json to replay")
      ->type_name("FILE")
      ->group(kCommon);
  app.add_option("--seed", out.seed, "of random inputs; 1234 when left out")
      ->type_name("N")
      ->group(kCommon);
  app.add_option("--candidate", out.candidate,
                 "function(full_name, real, args, kwargs) called in place of every device call")
      ->type_name("MODULE:FUNCTION")
      ->group(kCommon);
  AddDeviceKind(app, out);
  app.add_option("-d,--device_id", out.device_ids, "device number")
      ->type_name("ID")
      ->default_str("0")
      ->group(kDevice);
  app.add_option("-j,--jit_compile", out.jit_word, "NPU: compile operators just in time")
      ->type_name("[true|false]")
      ->expected(0, 1)
      ->group(kDevice);
  app.add_option("--fail-on", out.fail_on, "end with status 3 on error (abnormal overflow)")
      ->type_name("VERDICT")
      ->group(kVerdicts);
  AddJson(app, "call", out);
}

void AddGenerateOptions(CLI::App& app, PrecheckArgs& out) {
  app.add_option("-i,--config_path", out.config_path,
                 "config.json with dump_json_path, api_name, extract_api_path, propagation, "
                 "data_mode, random_seed and iter_times")
      ->type_name("FILE")
      ->group(kCommon);
  app.add_option("-o,--out_path", out.output_dir, "existing folder of the script")
      ->type_name("DIR")
      ->group(kCommon);
}

void AddOptions(CLI::App& app, PrecheckArgs& out) {
  SetUp(app);
  if (out.command == kOverflowCommand) {
    AddOverflowOptions(app, out);
    return AddTerminalFlags(app, out.terminal);
  }
  if (out.command == kGenerateCommand) {
    AddGenerateOptions(app, out);
    return AddTerminalFlags(app, out.terminal);
  }
  AddCommon(app, out);
  AddDevice(app, out);
  AddVerdicts(app, out);
  AddTerminalFlags(app, out.terminal);
}

// `-j` of run_overflow_check takes a value in the original; alone it means true.
void ReadJitWord(const CLI::App& app, PrecheckArgs& out, std::vector<Error>& problems) {
  constexpr std::array<std::string_view, 6> kOn = {"", "true", "True", "1", "yes", "on"};
  constexpr std::array<std::string_view, 5> kOff = {"false", "False", "0", "no", "off"};
  const auto among = [&](const auto& words) {
    return std::find(words.begin(), words.end(), out.jit_word) != words.end();
  };
  if (app.count("--jit_compile") == 0) return;
  out.jit_compile = among(kOn);
  if (out.jit_compile || among(kOff)) return;
  constexpr std::array<std::string_view, 2> kShown = {"true", "false"};
  problems.push_back(WrongValue("-j", out.jit_word, kShown));
}

}  // namespace

std::vector<Error> ParsePrecheckArgs(std::span<const std::string> arguments, PrecheckArgs& out) {
  CLI::App app;
  AddOptions(app, out);
  std::vector<Error> problems = CheckArguments(app, arguments);
  if (problems.empty()) problems = Parse(app, arguments);
  if (!problems.empty() || out.terminal.help || out.explain_rules) return problems;
  if (out.command == kOverflowCommand) ReadJitWord(app, out, problems);
  if (out.command == kGenerateCommand) {
    if (out.config_path.empty())
      problems.push_back(MissingOption("-i", "give the config.json that names the API"));
    if (out.output_dir.empty())
      problems.push_back(MissingOption("-o", "give an existing folder for the script"));
  } else if (out.api_info.empty()) {
    problems.push_back(MissingOption("-api_info", "give the dump.json to replay"));
  }
  out.echo = Echo(app);
  return problems;
}

std::string PrecheckHelp(const PrecheckArgs& args) {
  PrecheckArgs unused;
  unused.multi = args.multi;
  unused.command = args.command;
  CLI::App app;
  AddOptions(app, unused);
  const std::string_view spelling = args.face == app::Face::kOld ? "-f pytorch " : "";
  if (args.command == kOverflowCommand) {
    return fmt::format(
               "Replay every API of a dump on a device and on the CPU, and name those that "
               "overflow "
               "on one of them only.\n\n"
               "Usage: msprobe {}{} -api_info dump.json [options]\n\n",
               spelling, args.command) +
           OptionHelp(app, kCommon);
  }
  if (args.command == kGenerateCommand) {
    return fmt::format(
               "Write a Python script that replays one API of a dump and needs only torch.\n\n"
               "Usage: msprobe {}{} -i config.json -o DIR\n\n",
               spelling, args.command) +
           OptionHelp(app, kCommon);
  }
  return fmt::format(
             "Replay every API of a dump on a device and on the CPU in higher precision, and judge "
             "the difference.\n\n"
             "Usage: msprobe {}{} -api_info dump.json [-o DIR] [options]\n\n"
             "Writes accuracy_checking_result_*.csv (a line per API), "
             "accuracy_checking_details_*.csv "
             "(a line per output),\n"
             "and beside them …_summary_*.json and …_meta_*.json.\n\n",
             spelling, args.command) +
         OptionHelp(app, kCommon) +
         "Exit status: 0 done whatever the verdicts, 1 failed or done in part, 2 refused before "
         "any "
         "work, 3 --fail-on reached, 130 interrupted.\n";
}

std::vector<OptionShape> PrecheckShape(const std::string& command) {
  PrecheckArgs unused;
  unused.command = command;
  unused.multi = command.starts_with("multi_");
  CLI::App app;
  AddOptions(app, unused);
  return Shapes(app);
}

}  // namespace msprobe::cli
