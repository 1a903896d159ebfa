#include "cli/precheck_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>
#include <vector>

#include "app/compare_app.h"
#include "app/json_lines.h"
#include "app/precheck_html.h"
#include "app/precheck_options.h"
#include "app/precision_app.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/fail_on.h"
#include "cli/names.h"
#include "cli/options.h"
#include "cli/precheck_args.h"
#include "cli/precision_command.h"
#include "cli/status.h"

namespace msprobe::cli {
namespace {

constexpr std::array<std::string_view, 6> kCommands = {
    "run_ut", "multi_run_ut", "acc_check", "multi_acc_check", "run_overflow_check", "op_generate"};

class Problems {
 public:
  explicit Problems(std::vector<Error>& out) : out_(out) {}
  void Add(std::optional<Error> e) {
    if (e) out_.push_back(std::move(*e));
  }
  void Add(std::string_view option, std::string what, std::string hint) {
    out_.push_back(Error(ErrorCode::kInvalidArgument, std::move(what))
                       .At(std::string(option))
                       .Hint(std::move(hint)));
  }
  void Number(std::string_view option, const std::string& text, int64_t least, int64_t most,
              int64_t& out) {
    if (text.empty()) return;
    const char* end = text.data() + text.size();
    const auto r = std::from_chars(text.data(), end, out);
    if (r.ec == std::errc() && r.ptr == end && out >= least && out <= most) return;
    Add(option, fmt::format("has no value '{}'", text),
        fmt::format("a whole number from {} to {}", least, most));
  }
  void Word(std::string_view option, const std::string& text,
            std::span<const std::string_view> allowed) {
    if (std::find(allowed.begin(), allowed.end(), text) == allowed.end())
      out_.push_back(WrongValue(option, text, allowed));
  }
  // An existing regular file with that ending.
  void File(std::string_view option, const std::string& path, std::string_view suffix) {
    if (!path.ends_with(suffix)) {
      Add(option, fmt::format("'{}' does not end in {}", path, suffix),
          fmt::format("give a {} file", suffix));
      return;
    }
    const auto file = InputFile::Open(path);
    if (!file.ok()) out_.push_back(file.error());
  }

 private:
  std::vector<Error>& out_;
};

void CheckDevices(const PrecheckArgs& args, Problems& problems, app::PrecheckOptions& out) {
  constexpr std::array<std::string_view, 5> kKinds = {"", "npu", "cuda", "cpu", "auto"};
  if (std::find(kKinds.begin(), kKinds.end(), args.device_kind) == kKinds.end())
    problems.Add(WrongValue("--device", args.device_kind, std::span(kKinds).subspan(1)));
  std::set<int64_t> seen;
  for (const std::string& text : args.device_ids) {
    int64_t id = -1;
    problems.Number("-d", text, 0, 4095, id);
    if (id >= 0 && !seen.insert(id).second)
      problems.Add("-d", fmt::format("{} is given twice", id), "give each device once");
    out.device_ids.push_back(id);
  }
  if (out.device_ids.empty()) out.device_ids.push_back(0);
}

// accuracy_checking_result_<14 digits>.csv, with its details file beside it (precheck.md 1.1).
void CheckResume(const PrecheckArgs& args, Problems& problems) {
  if (args.csv_path.empty()) return;
  constexpr std::string_view kBegin = "accuracy_checking_result_";
  const std::string_view name = BaseName(args.csv_path);
  const std::string_view stamp = name.starts_with(kBegin) && name.ends_with(".csv")
                                     ? name.substr(kBegin.size(), name.size() - kBegin.size() - 4)
                                     : std::string_view();
  if (stamp.size() != 14 || stamp.find_first_not_of("0123456789") != std::string_view::npos) {
    problems.Add("-csv_path", fmt::format("'{}' is not a result file of the pre-check", name),
                 "its name is accuracy_checking_result_ and 14 digits");
    return;
  }
  problems.File("-csv_path", args.csv_path, ".csv");
  const std::string details =
      JoinPath(DirName(args.csv_path), fmt::format("accuracy_checking_details_{}.csv", stamp));
  if (!PathExists(details))
    problems.Add("-csv_path", fmt::format("'{}' does not exist", details),
                 "both files of the earlier run are needed");
}

// On the CPU a baseline of the same CPU says nothing, unless a candidate stands in for the device
// (precheck.md 19.4).
void CheckBaseline(const PrecheckArgs& args, Problems& problems) {
  if (args.baseline.empty() || args.baseline == "none") return;
  if (args.baseline != "cpu") return problems.File("--baseline", args.baseline, ".csv");
  if (args.device_kind == "cpu" && args.candidate.empty())
    problems.Add("--baseline", "cpu would compare the CPU with itself",
                 "give --candidate, another --device or a details file of another machine");
}

app::PrecheckOptions Check(const PrecheckArgs& args, const Hooks& hooks,
                           std::vector<Error>& errors) {
  Problems problems(errors);
  constexpr std::array<std::string_view, 2> kReferences = {"auto", "f64"};
  app::PrecheckOptions out;
  FailOn fail_on;
  problems.Add(ReadStandard(args.standard, args.face, out.standard));
  problems.Add(ReadPrecheckRules(args.rules, out.rules));
  constexpr std::array<std::string_view, 2> kTables = {"original", "corrected"};
  problems.Word("--small-values", args.small_values, kTables);
  if (args.small_values == "corrected") out.small_values = precheck::SmallValues::kCorrected;
  problems.Add(ReadDigits(args.digits, out.format));
  problems.Add(ReadFailOn(args.fail_on, "skip", fail_on));
  out.fail_on_error = fail_on.error;
  out.fail_on_warning = fail_on.warning;
  out.fail_on_skip = fail_on.rest;
  if (args.explain_rules) return out;
  CheckDevices(args, problems, out);
  const EngineChoice choice = CheckEngine(args.engine, hooks, errors);
  out.ray = choice.ray;
  out.ray_address = args.engine.ray_address;
  problems.Word("--reference", args.reference, kReferences);
  problems.Number("-n", args.multi ? args.num_splits : "", 1, 64, out.workers);
  if (choice.workers > 0) out.workers = choice.workers;
  if (!choice.ray && choice.workers > 64) {
    problems.Add("--workers", fmt::format("has no value '{}'", choice.workers),
                 "a whole number from 1 to 64 on one machine");
  }
  problems.Number("--seed", args.seed, 0, INT64_MAX, out.seed);
  problems.Number("--timeout", args.timeout, 1, 86400, out.timeout);
  out.memory_limit = ReadMemoryLimit(args.memory_limit, errors);
  const size_t colon = args.candidate.find(':');
  if (!args.candidate.empty() &&
      (colon == std::string::npos || colon == 0 || colon + 1 == args.candidate.size()))
    problems.Add("--candidate", fmt::format("has no value '{}'", args.candidate),
                 "MODULE:FUNCTION");
  if (args.command == "op_generate") {
    problems.File("-i", args.config_path, ".json");
    if (!IsDirectory(args.output_dir))
      problems.Add("-o", fmt::format("'{}' is no folder", args.output_dir), "make it first");
    return out;
  }
  problems.File("-api_info", args.api_info, ".json");
  if (!args.config_path.empty()) problems.File("-config", args.config_path, ".json");
  CheckBaseline(args, problems);
  CheckResume(args, problems);
  if (!args.json_path.empty() && !args.reproduce.empty())
    problems.Add("--json", "has no rows to write beside --reproduce", "leave one of them out");
  if (args.retry_skips && args.csv_path.empty())
    problems.Add("--retry-skips", "needs -csv_path", "give the result file to go on with");
  return out;
}

// What needs no check.
void CopyPlain(const PrecheckArgs& args, app::PrecheckOptions& out) {
  out.command = args.command;
  out.old_face = args.face == app::Face::kOld;
  out.multi = args.multi;
  out.api_info = args.api_info;
  if (!args.output_dir.empty()) out.out_path = args.output_dir;
  out.csv_path = args.csv_path;
  out.config_path = args.config_path;
  out.save_error_data = args.save_error_data;
  out.jit_compile = args.jit_compile;
  out.filter_api = args.filter_api;
  out.device = args.device_kind;
  out.reference = args.reference;
  out.candidate = args.candidate;
  out.baseline = args.baseline;
  out.reproduce = args.reproduce;
  out.english = args.english;
  out.retry_skips = args.retry_skips;
  out.tf32 = args.tf32;
  out.quiet = args.terminal.quiet;
  out.verbose = args.terminal.verbose;
  out.debug = args.terminal.debug;
  out.echo = args.echo;
}

// While it lives, what is printed on standard output goes to standard error: for "--json -".
class OutputAside {
 public:
  explicit OutputAside(bool on) : saved_(on ? dup(STDOUT_FILENO) : -1) {
    if (saved_ >= 0) dup2(STDERR_FILENO, STDOUT_FILENO);
  }
  OutputAside(const OutputAside&) = delete;
  OutputAside& operator=(const OutputAside&) = delete;
  ~OutputAside() {
    if (saved_ < 0) return;
    dup2(saved_, STDOUT_FILENO);
    close(saved_);
  }

 private:
  int saved_;
};

void WritePages(const std::vector<std::string>& details, bool quiet, Terminal& terminal) {
  for (const std::string& path : details) {
    const Result<std::string> page = app::WritePrecheckPage(path);
    if (page.ok()) {
      // On stdout: the last line of stderr is that of the counts.
      if (!quiet) terminal.PrintAnswer("To look at: " + VisibleText(*page) + "\n");
    } else {
      terminal.Warning("no page was written: " + page.error().ToString());
    }
  }
}

// A run that was refused, broke off or was interrupted has no rows.
Status WriteRows(int status, const std::vector<std::string>& details, app::JsonLines& rows) {
  if (!rows.wanted() || (status != kDone && status != kFailed && status != kFailOn)) return {};
  for (const std::string& path : details) {
    MSPROBE_TRY(app::AddCsvRows(path, precheck::DetailsHeader(true), rows));
  }
  return rows.Commit();
}

// Runs in the host, then writes what is made of its details files.
int RunInHost(const PrecheckArgs& args, app::PrecheckOptions& options, const Hooks& hooks,
              Terminal& terminal) {
  const bool overflow = args.command == "run_overflow_check";
  Result<app::JsonLines> rows = app::JsonLines::Create(args.json_path);
  if (!rows.ok()) {
    terminal.PrintErrors({&rows.error(), 1});
    return StatusOf(rows.error());
  }
  if (overflow) options.rows_path = rows->temporary_path();
  const app::NewDetails details(options.out_path, options.csv_path);
  const bool aside = args.json_path == app::kStandardOutput;
  int status = kDone;
  {
    const OutputAside scope(aside);
    status = hooks.precheck(app::ToJson(options));
  }
  const bool pages = args.face == app::Face::kNew && !args.no_html && app::WritesHtml();
  const std::vector<std::string> found =
      overflow || (!pages && !rows->wanted()) ? std::vector<std::string>() : details.Find();
  if (pages) WritePages(found, args.terminal.quiet || aside, terminal);
  const bool nothing = overflow ? status == kFailed : found.empty();
  const Status written = nothing ? Status() : WriteRows(status, found, *rows);
  if (written.ok()) return status;
  terminal.PrintErrors({&written.error(), 1});
  return kFailed;
}

}  // namespace

bool IsPrecheckCommand(std::string_view name) {
  return std::find(kCommands.begin(), kCommands.end(), name) != kCommands.end();
}

int RunPrecheck(const std::string& command, std::span<const std::string> arguments, app::Face face,
                const Hooks& hooks, Terminal& terminal) {
  PrecheckArgs args;
  args.command = command;
  args.face = face;
  args.multi = command.starts_with("multi_");
  std::vector<Error> problems = ParsePrecheckArgs(arguments, args);
  if (problems.empty() && args.terminal.help) {
    terminal.PrintAnswer(PrecheckHelp(args));
    return kDone;
  }
  app::PrecheckOptions options;
  if (problems.empty()) options = Check(args, hooks, problems);
  if (!problems.empty()) {
    terminal.PrintErrors(problems);
    return kRefused;
  }
  if (args.explain_rules) {
    terminal.PrintAnswer(app::PrecheckRulesText(options.standard, options.rules));
    return kDone;
  }
  if (!hooks.precheck) {
    const Error error = Error(ErrorCode::kUnsupported, "this program has no Python to run it")
                            .At(command)
                            .Hint("install the Python package and PyTorch, and use its msprobe");
    terminal.PrintErrors({&error, 1});
    return kRefused;
  }
  CopyPlain(args, options);
  return RunInHost(args, options, hooks, terminal);
}

}  // namespace msprobe::cli
