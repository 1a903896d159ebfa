#include "cli/culprit_command.h"

#include <fmt/format.h>

#include "app/culprit_app.h"
#include "app/culprit_runs.h"
#include "cli/options.h"
#include "cli/status.h"

namespace msprobe::cli {

void AddCulpritOptions(CLI::App& app, CulpritArgs& out, const char* group, bool alone) {
  app.add_option("--q", out.q, "level of Benjamini & Hochberg for replayed calls")
      ->type_name("Q")
      ->default_str("0.001")
      ->group(group);
  app.add_option("--floor", out.floor_path,
                 "constants of scores that --learn-floor wrote; default: those of CPU kernels")
      ->type_name("JSON")
      ->group(group);
  if (!alone) return;
  app.add_flag("--one-dump", out.one_dump,
               "no golden run: calls of -tp whose own result is wrong (tensor dumps)")
      ->group(group);
  app.add_option("--learn-floor", out.learn_floor,
                 "two runs that are right: learn the constants of scores from them, write -o FILE")
      ->type_name("RUN RUN")
      ->expected(2)
      ->group(group);
}

namespace {

Error Contradiction(std::string_view option, std::string_view what) {
  return Error(ErrorCode::kInvalidArgument, std::string(what))
      .At(std::string(option))
      .Hint("leave one of them out");
}

}  // namespace

void CheckCulpritPaths(const CulpritArgs& args, const std::string& target,
                       const std::string& golden, std::vector<Error>& problems) {
  if (args.one_dump && !args.learn_floor.empty())
    problems.push_back(Contradiction("--one-dump", "contradicts --learn-floor"));
  if (args.one_dump) {
    if (target.empty()) problems.push_back(MissingOption("-tp", "give the dump to judge"));
    if (!golden.empty())
      problems.push_back(Contradiction("--one-dump", "has no golden run, and -gp names one"));
  } else if (!target.empty() || !golden.empty()) {
    problems.push_back(
        Contradiction("--learn-floor", "names both runs itself, and -tp or -gp names one as well"));
  }
  if (!args.learn_floor.empty() && !args.floor_path.empty())
    problems.push_back(Contradiction("--floor", "is what --learn-floor makes"));
}

void ReadCulpritArgs(const CulpritArgs& args, app::CompareOptions& out,
                     std::vector<Error>& problems) {
  if (!args.floor_path.empty()) {
    auto model = culprit::ReadFloor(args.floor_path, out.score_model);
    if (model.ok()) {
      out.score_model = *model;
    } else {
      problems.push_back(std::move(model).error());
    }
  }
  if (args.q != 0) {
    if (!(args.q > 0 && args.q < 1)) {
      problems.push_back(Error(ErrorCode::kInvalidArgument, "is no level between 0 and 1")
                             .At("--q")
                             .Hint("the share of false discoveries to allow, 0.001 for example"));
    } else {
      out.score_model.q = args.q;
    }
  }
  if (args.one_dump) out.golden = out.target;
  if (args.learn_floor.size() == 2) {
    out.target = args.learn_floor[0];
    out.golden = args.learn_floor[1];
  }
}

namespace {

constexpr std::string_view kNothingWritten = "interrupted; nothing was written";

int LearnFloor(const app::CompareOptions& options, const Attended& attended) {
  Terminal& terminal = attended.terminal;
  const Result<app::FloorRun> run = app::LearnFloor(options, terminal, terminal, &attended.cancel);
  if (!run.ok()) return EndWithError(run.error(), attended.interrupts, terminal, kNothingWritten);
  if (!attended.quiet) terminal.PrintAnswer(app::FloorAnswer(*run));
  terminal.PrintLine(fmt::format("compare: floor learned, entries {}, left out {}, path {}",
                                 run->entries, run->infinite, run->path));
  return kDone;
}

}  // namespace

int RunCulpritAlone(const CulpritArgs& args, const app::CompareOptions& options,
                    const FailOn& fail_on, const Attended& attended) {
  if (!args.one_dump) return LearnFloor(options, attended);
  Terminal& terminal = attended.terminal;
  const Result<app::CompareRun> run =
      app::JudgeOneDump(options, terminal, terminal, &attended.cancel);
  if (!run.ok()) return EndWithError(run.error(), attended.interrupts, terminal, kNothingWritten);
  if (!attended.quiet) terminal.PrintAnswer(app::OneDumpAnswer(*run));
  terminal.PrintLine("compare: " + app::OneDumpClosingLine(*run));
  if (run->partial) return kFailed;
  const bool culprit = fail_on.culprit && !app::FoundNoCulprit(*run);
  const bool entries = fail_on.Reached(run->counts.error, 0, run->counts.unmatched);
  return culprit || entries ? kFailOn : kDone;
}

}  // namespace msprobe::cli
