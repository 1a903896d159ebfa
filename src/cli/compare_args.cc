#include "cli/compare_args.h"

#include <fmt/format.h>

#include <memory>

#include "cli/names.h"
#include "cli/options.h"

namespace msprobe::cli {
namespace {

using app::Face;

constexpr const char* kCommon = "Common";
constexpr const char* kMatching = "Matching";
constexpr const char* kReport = "Report";
constexpr const char* kVerdicts = "Verdicts and exit status";
constexpr const char* kTerminal = "Terminal";
constexpr const char* kEngine = "Where it runs";
constexpr const char* kNewUsage = "msprobe compare -tp TARGET -gp GOLDEN [options]";
constexpr const char* kOldUsage = "msprobe -f pytorch compare -i compare.json [options]";

// What is said of the comparison, the search for the culprit, and where all of it runs.
void AddOutcome(CLI::App& app, CompareArgs& out) {
  app.add_option("--json", out.json_path, "also every row as one line of JSON")
      ->type_name("FILE")
      ->group(kReport);
  app.add_option("--junit", out.junit_path, "also every entry as a test result, JUnit XML")
      ->type_name("FILE")
      ->group(kReport);
  app.add_flag("--no-html", out.no_html,
               out.face == Face::kNew ? "no compare_report_*.html" : "the default of this spelling")
      ->group(kReport);
  app.add_flag("--culprit", out.culprit,
               "name the operator at fault (default of the newer spelling where the dumps tell)")
      ->group(kCommon);
  app.add_flag("--no-culprit", out.no_culprit, "do not search the operator at fault")
      ->group(kCommon);
  AddCulpritOptions(app, out.search, kCommon, out.face == Face::kNew);
  app.add_flag("--loss-impact", out.loss_impact,
               "effects of all introduced errors on the loss; replays both sides")
      ->group(kCommon);
  AddEngineOptions(app, out.engine, kEngine);
  app.add_option("--block-mib", out.engine.block_mib,
                 "--engine ray: cut larger tensor dumps into items of so many MiB of the target")
      ->type_name("N")
      ->default_str("256")
      ->group(kEngine);
  app.add_flag("--html", out.html,
               out.face == Face::kNew ? "the default of this spelling"
                                      : "also compare_report_*.html, a page to look at")
      ->group(kReport);
}

void AddSelection(CLI::App& app, CompareArgs& out) {
  app.add_option("--rank", out.ranks, "only these ranks of folders: 0,3")
      ->type_name("N,…")
      ->delimiter(',')
      ->check(CLI::NonNegativeNumber)
      ->group(kCommon);
  app.add_option("--step", out.steps, "only these steps of folders of steps: 0,3")
      ->type_name("N,…")
      ->delimiter(',')
      ->check(CLI::NonNegativeNumber)
      ->group(kCommon);
}

void AddShared(CLI::App& app, CompareArgs& out) {
  app.add_option("-o,--output_path", out.output_path, "folder of the reports, made when absent")
      ->type_name("DIR")
      ->expected(0, 1)
      ->default_str("./output")
      ->group(kCommon);
  app.add_option("--data_mapping", out.data_mapping, "names of target rows to names of golden rows")
      ->type_name("YAML")
      ->group(kMatching);
  app.add_option("--api_mapping", out.api_mapping,
                 "target of MindSpore: its functions to those of PyTorch; alone: by like names")
      ->type_name("[YAML]")
      ->expected(0, 1)
      ->group(kMatching);
  app.add_option("--layer_mapping", out.layer_mapping,
                 "pair by place in the module tree (construct.json); children that are renamed")
      ->type_name("[YAML]")
      ->expected(0, 1)
      ->group(kMatching);
  app.add_option("--rules", out.rules, "default, base, upstream, or a file (see --explain-rules)")
      ->type_name("SET|YAML")
      ->group(kVerdicts);
  app.add_flag("--explain-rules", out.explain_rules, "print all rules with their limits, and end")
      ->group(kVerdicts);
  app.add_option("--fail-on", out.fail_on,
                 "end with status 3 on error, warning (or error), unmatched, culprit; or a,b")
      ->type_name("VERDICT")
      ->group(kVerdicts);
  AddSelection(app, out);
  app.add_flag("--resume", out.resume,
               "take over what an interrupted run of the same command had compared (tensor dumps)")
      ->group(kCommon);
  app.add_flag("--diff_analyze", out.diff_analyze,
               "only find the first entry that differs, over all ranks; writes JSON")
      ->group(kCommon);
  app.add_option("--config", out.config_path,
                 "clear or multiply tensors first: valid_length, right_matmul, left_matmul, …")
      ->type_name("YAML")
      ->group(kMatching);
  app.add_option(
         "--layout", out.layout,
         "step folders of other parallel sizes: how the ranks hold the parts (docs/scale.md)")
      ->type_name("YAML")
      ->group(kMatching);
  app.add_option("--metrics", out.metrics,
                 "folder of alg_<name>.py: each adds a metric of yours (tensor dumps); runs them")
      ->type_name("DIR")
      ->group(kReport);
  app.add_option("--memory-limit", out.memory_limit,
                 "for tensors that cannot be read block by block: larger pairs are not compared")
      ->type_name("SIZE")
      ->default_str("4G")
      ->group(kMatching);
  AddOutcome(app, out);
}

void AddNew(CLI::App& app, CompareArgs& out) {
  app.add_option("--target_path", out.target_path,
                 "dump under test: dump.json, or a folder of ranks or steps")
      ->type_name("PATH")
      ->group(kCommon);
  app.add_option("--golden_path", out.golden_path, "reference dump, of the same kind")
      ->type_name("PATH")
      ->group(kCommon);
  AddShared(app, out);
  app.add_flag("--xlsx", out.xlsx, "write xlsx instead of csv")->group(kCommon);
  app.add_flag("--fuzzy_match", out.fuzzy, "pair calls that differ only in their number")
      ->group(kMatching);
  app.add_option("--cell_mapping", out.cell_mapping,
                 "names or classes of target modules to golden ones; or alone")
      ->type_name("[YAML]")
      ->expected(0, 1)
      ->group(kMatching);
  app.add_flag("--consistent_check", out.consistent_check,
               "training against inference: modules that one side fuses are compared as one")
      ->group(kMatching);
  app.add_option("--backend", out.backend, "framework of the training dump: fsdp or megatron")
      ->type_name("NAME")
      ->group(kMatching);
  app.add_flag("--is_print_compare_log", out.row_log,
               "one log line per row (tensor dumps; needs -v)")
      ->group(kTerminal);
  app.add_option("-m,--mode", out.mode, "auto is the only mode of this build")
      ->type_name("MODE")
      ->group("");
}

void AddOld(CLI::App& app, CompareArgs& out) {
  app.add_option("-i,--input_path", out.input_path,
                 "compare.json with npu_path and bench_path: two dump.json, or two folders")
      ->type_name("JSON")
      ->group(kCommon);
  AddShared(app, out);
  app.add_flag("--highlight", out.highlight, "colour bad rows red and suspicious ones yellow")
      ->group(kReport);
  app.add_flag("-c,--compare_only", out.compare_only, "no advisor_*.txt")->group(kReport);
  app.add_flag("-s,--stack_mode", out.stack_mode, "show the call stacks of stack_path")
      ->group(kReport);
  app.add_flag("-f,--fuzzy_match", out.fuzzy, "pair calls that differ only in their number")
      ->group(kMatching);
  // Known, so that their refusal can say why (compare.md 1.1).
  app.add_option("--cell_mapping", out.cell_mapping)->expected(0, 1)->group("");
}

struct Parser {
  CLI::App app;
};

std::unique_ptr<Parser> MakeParser(Face face, CompareArgs& out) {
  auto p = std::make_unique<Parser>();
  out.face = face;
  CLI::App& app = p->app;
  SetUp(app);
  if (face == Face::kNew) {
    AddNew(app, out);
  } else {
    AddOld(app, out);
  }
  AddTerminalFlags(app, out.terminal);
  return p;
}

void CheckRequired(const CompareArgs& a, std::vector<Error>& out) {
  if (a.face == Face::kOld) {
    if (a.input_path.empty())
      out.push_back(MissingOption("-i", "give the compare.json that names the two dumps"));
    return;
  }
  if (a.search.alone()) return CheckCulpritPaths(a.search, a.target_path, a.golden_path, out);
  if (a.target_path.empty()) out.push_back(MissingOption("-tp", "give the dump under test"));
  if (a.golden_path.empty()) out.push_back(MissingOption("-gp", "give the reference dump"));
}

}  // namespace

std::vector<Error> ParseCompareArgs(std::span<const std::string> arguments, Face face,
                                    CompareArgs& out) {
  out.face = face;
  const auto p = MakeParser(face, out);
  CompareArgs unused;
  const auto other = MakeParser(face == Face::kNew ? Face::kOld : Face::kNew, unused);
  std::vector<Error> problems = CheckArguments(p->app, arguments, KnownOptions(other->app),
                                               face == Face::kNew ? kOldUsage : kNewUsage);
  if (problems.empty()) problems = Parse(p->app, arguments);
  if (!problems.empty()) return problems;
  if (out.terminal.help || out.explain_rules) return {};
  CheckRequired(out, problems);
  out.echo = Echo(p->app);
  return problems;
}

std::string CompareHelp(Face face) {
  CompareArgs unused;
  const auto p = MakeParser(face, unused);
  const std::string head = fmt::format(
      "Compare two dumps and say where they part.\n\nUsage: {}\n{}\n",
      face == Face::kNew ? kNewUsage : kOldUsage,
      face == Face::kNew ? "\nTwo files are compared by themselves. Folders are compared rank by "
                           "rank (rank, rank0, …), folders of steps step by\n"
                           "step. Every row of the csv has its Result: pass, warning, error, or "
                           "unmatched when it could not be compared.\n"
                         : "\nWrites the columns, workbook and advice of the 8.x releases. New "
                           "spelling: msprobe compare --help\n");
  return head + OptionHelp(p->app, kCommon) +
         "Exit status: 0 done, 1 failed or done in part, 2 refused before any work, 3 --fail-on "
         "reached, 130 interrupted.\n";
}

std::vector<OptionShape> CompareShape(Face face) {
  CompareArgs unused;
  return Shapes(MakeParser(face, unused)->app);
}

}  // namespace msprobe::cli
