#include "app/compare_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "base/file.h"

namespace msprobe::app {
namespace {

using dump::RankDir;
using dump::StepDir;

constexpr std::string_view kDump = "dump.json";
constexpr std::string_view kDebug = "debug.json";

bool HasDump(const std::string& dir) {
  return PathExists(JoinPath(dir, kDump)) || PathExists(JoinPath(dir, kDebug));
}

Error NotADump(const std::string& path) {
  return Error(ErrorCode::kInvalidArgument, "not named dump.json or debug.json")
      .At(path)
      .Hint("give the dump.json or debug.json of a rank, or a folder of ranks on both sides");
}

// Adds the pairs of files of two rank folders.
void AddRankFolders(RankJob base, const std::string& target, const std::string& golden,
                    ComparePlan& plan) {
  bool any = false;
  for (const std::string_view name : {kDump, kDebug}) {
    base.target_json = JoinPath(target, name);
    base.golden_json = JoinPath(golden, name);
    if (!PathExists(base.target_json) || !PathExists(base.golden_json)) continue;
    base.beside_dump = any;
    plan.jobs.push_back(base);
    any = true;
  }
  if (any) return;
  std::string reason;
  if (!HasDump(target)) {
    reason = fmt::format("no dump.json or debug.json in {}", target);
  } else if (!HasDump(golden)) {
    reason = fmt::format("no dump.json or debug.json in {}", golden);
  } else {
    reason = "one side has only dump.json, the other only debug.json";
  }
  plan.missing.push_back({base.step, base.rank, std::move(reason)});
}

void AddPair(const std::string& step, const RankDir& target, const RankDir& golden,
             ComparePlan& plan) {
  RankJob job;
  job.step = step;
  job.rank = target.name;
  job.target_rank = target.name;
  job.golden_rank = golden.name;
  AddRankFolders(std::move(job), target.path, golden.path, plan);
}

std::vector<RankDir> OfKind(const std::vector<RankDir>& all, bool process) {
  std::vector<RankDir> out;
  for (const RankDir& r : all) {
    if ((r.kind == RankDir::Kind::kProcess) == process) out.push_back(r);
  }
  return out;
}

// "rank" and "rank0" in one folder are two ranks: `rank` alone takes number 0 only if that is free.
std::map<int64_t, const RankDir*> ByNumber(const std::vector<RankDir>& ranks) {
  std::map<int64_t, const RankDir*> out;
  for (const RankDir& r : ranks) {
    if (r.kind == RankDir::Kind::kRank) out[r.number] = &r;
  }
  for (const RankDir& r : ranks) {
    if (r.kind == RankDir::Kind::kPlain && !out.try_emplace(0, &r).second) out[-1] = &r;
  }
  return out;
}

std::string Names(const std::vector<RankDir>& ranks) {
  std::string out;
  for (const RankDir& r : ranks) {
    if (out.size() > 60) return out + ", …";
    if (!out.empty()) out += ", ";
    out += r.name;
  }
  return out;
}

void PairByPosition(const std::string& step, const std::vector<RankDir>& target,
                    const std::vector<RankDir>& golden, ComparePlan& plan, LogSink& log) {
  const auto process = [](const std::vector<RankDir>& r) {
    return r.front().kind == RankDir::Kind::kProcess;
  };
  // The one process of either side belongs to the one of the other: nothing to warn about.
  if (process(target) && process(golden))
    return AddPair(step, target.front(), golden.front(), plan);
  log.Warning(fmt::format(
      "{}no rank number is common to both sides ({} against {}): ranks are paired by position",
      step.empty() ? "" : step + ": ", Names(target), Names(golden)));
  const size_t n = std::min(target.size(), golden.size());
  for (size_t i = 0; i < n; ++i) AddPair(step, target[i], golden[i], plan);
  for (size_t i = n; i < target.size(); ++i) {
    plan.missing.push_back({step, target[i].name, "no partner in the golden dump"});
  }
  for (size_t i = n; i < golden.size(); ++i) {
    plan.missing.push_back({step, golden[i].name, "no partner in the target dump"});
  }
}

void PairRanks(const std::string& step, const std::vector<RankDir>& target,
               const std::vector<RankDir>& golden, ComparePlan& plan, LogSink& log) {
  const auto t = ByNumber(target);
  const auto g = ByNumber(golden);
  // After a choice one side may have none left.
  const bool common =
      target.empty() || golden.empty() ||
      std::any_of(t.begin(), t.end(), [&](const auto& entry) { return g.contains(entry.first); });
  if (!common) return PairByPosition(step, target, golden, plan, log);
  std::map<int64_t, std::pair<const RankDir*, const RankDir*>> all;
  for (const auto& [number, dir] : t) all[number].first = dir;
  for (const auto& [number, dir] : g) all[number].second = dir;
  for (const auto& [number, pair] : all) {
    if (pair.first != nullptr && pair.second != nullptr) {
      AddPair(step, *pair.first, *pair.second, plan);
    } else if (pair.first != nullptr) {
      plan.missing.push_back({step, pair.first->name, "missing in the golden dump"});
    } else {
      plan.missing.push_back({step, pair.second->name, "missing in the target dump"});
    }
  }
}

bool Wanted(const std::vector<int64_t>& wanted, int64_t number) {
  return wanted.empty() || std::find(wanted.begin(), wanted.end(), number) != wanted.end();
}

// Leaves the wanted ranks. Process folders have no number to choose by.
void Choose(const PlanFilter& filter, std::vector<RankDir>& ranks) {
  std::erase_if(ranks, [&](const RankDir& r) {
    return r.kind != RankDir::Kind::kProcess && !Wanted(filter.ranks, r.number);
  });
}

Status CheckChosen(const PlanFilter& filter, const std::vector<RankDir>& target,
                   const std::vector<RankDir>& golden, const std::string& dir) {
  for (const int64_t rank : filter.ranks) {
    const auto is = [&](const RankDir& r) { return r.number == rank; };
    if (std::any_of(target.begin(), target.end(), is) ||
        std::any_of(golden.begin(), golden.end(), is)) {
      continue;
    }
    return Error(ErrorCode::kNotFound,
                 fmt::format("rank {} is wanted and is on neither side", rank))
        .At(dir)
        .Hint(fmt::format("the target has {}", target.empty() ? "none" : Names(target)));
  }
  return {};
}

Status PlanStep(const std::string& step, const std::string& target, const std::string& golden,
                const PlanFilter& filter, ComparePlan& plan, LogSink& log) {
  MSPROBE_ASSIGN(const std::vector<RankDir> all_target, dump::ListRanks(target));
  MSPROBE_ASSIGN(const std::vector<RankDir> all_golden, dump::ListRanks(golden));
  WarnOfStrayFolders(target, all_target, log);
  if (target != golden) WarnOfStrayFolders(golden, all_golden, log);
  std::vector<RankDir> t = OfKind(all_target, false);
  std::vector<RankDir> g = OfKind(all_golden, false);
  // Folders of processes only: process numbers say nothing about which belong together, so exactly
  // one a side is needed.
  if (t.empty()) t = OfKind(all_target, true);
  if (g.empty()) g = OfKind(all_golden, true);
  for (const auto& [side, dir] : {std::pair(&t, &target), std::pair(&g, &golden)}) {
    if (side->empty()) {
      return Error(ErrorCode::kNotFound, "no rank folder inside")
          .At(*dir)
          .Hint("expected rank, rank<n> or proc<pid> folders, or dump.json itself");
    }
    if (side->front().kind == RankDir::Kind::kProcess && side->size() > 1) {
      return Error(ErrorCode::kMismatch,
                   fmt::format("several process folders ({}), which carry no rank number",
                               Names(*side)))
          .At(*dir)
          .Hint("compare the dump.json files of two processes directly");
    }
  }
  MSPROBE_TRY(CheckChosen(filter, t, g, target));
  Choose(filter, t);
  Choose(filter, g);
  PairRanks(step, t, g, plan, log);
  return {};
}

Status PlanRoot(const std::vector<StepDir>& target, const std::vector<StepDir>& golden,
                const PlanFilter& filter, ComparePlan& plan, LogSink& log) {
  std::map<int64_t, std::pair<const StepDir*, const StepDir*>> all;
  for (const StepDir& s : target) all[s.number].first = &s;
  for (const StepDir& s : golden) all[s.number].second = &s;
  for (const int64_t step : filter.steps) {
    if (all.contains(step)) continue;
    return Error(ErrorCode::kNotFound,
                 fmt::format("step {} is wanted and is on neither side", step));
  }
  std::erase_if(all, [&](const auto& e) { return !Wanted(filter.steps, e.first); });
  bool common = false;
  for (const auto& [number, pair] : all) {
    if (pair.first == nullptr || pair.second == nullptr) {
      const StepDir* there = pair.first != nullptr ? pair.first : pair.second;
      log.Warning(fmt::format("{} is only in the {} dump and is not compared", there->name,
                              pair.first != nullptr ? "target" : "golden"));
      plan.missing.push_back(
          {there->name, "",
           pair.first != nullptr ? "missing in the golden dump" : "missing in the target dump"});
      continue;
    }
    common = true;
    const Status planned =
        PlanStep(pair.first->name, pair.first->path, pair.second->path, filter, plan, log);
    if (!planned.ok()) plan.missing.push_back({pair.first->name, "", planned.error().ToString()});
  }
  if (common) return {};
  return Error(ErrorCode::kMismatch, "no step number is common to both dumps")
      .Hint("give two step folders to compare different steps");
}

// What a folder that was given holds.
struct Folder {
  std::string path;
  bool has_dump = false;
  bool has_ranks = false;
  std::vector<StepDir> steps;
};

Result<Folder> Look(const std::string& path) {
  Folder out;
  out.path = path;
  out.has_dump = HasDump(path);
  MSPROBE_ASSIGN(const std::vector<RankDir> ranks, dump::ListRanks(path));
  out.has_ranks = !ranks.empty();
  MSPROBE_ASSIGN(out.steps, dump::ListSteps(path));
  return out;
}

std::string_view KindOf(const Folder& f) {
  if (f.has_dump) return "the folder of one rank";
  if (f.has_ranks) return "a folder of ranks";
  return f.steps.empty() ? "" : "a folder of steps";
}

// The two folders must be of one kind. One that holds neither is told apart by PlanStep.
Status CheckKinds(const Folder& target, const Folder& golden) {
  const std::string_view t = KindOf(target), g = KindOf(golden);
  if (t.empty() || g.empty() || t == g) return {};
  // A folder may hold both ranks and steps: one kind in common is enough.
  if (!target.has_dump && !golden.has_dump && target.has_ranks && golden.has_ranks) return {};
  if (!target.steps.empty() && !golden.steps.empty()) return {};
  return Error(ErrorCode::kMismatch,
               fmt::format("the target is {}, the golden side ({}) {}", t, golden.path, g))
      .At(target.path)
      .Hint("both must be of one kind: rank folders, folders of ranks, or folders of steps");
}

}  // namespace

void WarnOfStrayFolders(const std::string& dir, const std::vector<RankDir>& known, LogSink& log) {
  constexpr size_t kMost = 5;
  std::vector<std::string> stray;
  std::error_code failed;
  for (std::filesystem::directory_iterator it(dir, failed), end; !failed && it != end;
       it.increment(failed)) {
    const std::string name = it->path().filename().string();
    if (std::any_of(known.begin(), known.end(), [&](const RankDir& r) { return r.name == name; }) ||
        !it->is_directory(failed) || (!name.starts_with("rank") && !HasDump(it->path().string()))) {
      continue;
    }
    stray.push_back(name);
  }
  if (stray.empty()) return;
  std::sort(stray.begin(), stray.end());
  std::string names;
  for (size_t i = 0; i < std::min(stray.size(), kMost); ++i) {
    names += (names.empty() ? "" : ", ") + stray[i];
  }
  if (stray.size() > kMost) names += fmt::format(" and {} more", stray.size() - kMost);
  log.Warning(
      fmt::format("{}: not taken as ranks: {}; expected rank, rank<n> without leading "
                  "zeros, or proc<pid>",
                  dir, names));
}

std::vector<Error> CheckComparePaths(const std::string& target, const std::string& golden) {
  std::vector<Error> out;
  for (const auto& [path, side] : {std::pair(&target, "target"), std::pair(&golden, "golden")}) {
    if (path->empty()) {
      out.push_back(Error(ErrorCode::kInvalidArgument, fmt::format("the {} path is empty", side)));
    } else if (!PathExists(*path)) {
      out.push_back(Error(ErrorCode::kNotFound, fmt::format("the {} path does not exist", side))
                        .At(*path)
                        .Hint("expected dump.json, debug.json or a folder of ranks"));
    }
  }
  if (!out.empty()) return out;
  const bool target_dir = IsDirectory(target);
  if (target_dir != IsDirectory(golden)) {
    out.push_back(
        Error(ErrorCode::kMismatch,
              fmt::format("the target is a {}, the golden side ({}) a {}",
                          target_dir ? "folder" : "file", golden, target_dir ? "file" : "folder"))
            .At(target)
            .Hint("both must be files or both folders"));
    return out;
  }
  if (target_dir) return out;
  for (const std::string* path : {&target, &golden}) {
    if (BaseName(*path) != kDump && BaseName(*path) != kDebug) out.push_back(NotADump(*path));
  }
  if (out.empty() && BaseName(target) != BaseName(golden)) {
    out.push_back(Error(ErrorCode::kMismatch, fmt::format("{} against {} of the golden side",
                                                          BaseName(target), BaseName(golden)))
                      .At(target)
                      .Hint("both must be dump.json, or both debug.json"));
  }
  return out;
}

Result<ComparePlan> PlanCompare(const std::string& target, const std::string& golden,
                                const PlanFilter& filter, LogSink& log) {
  std::vector<Error> problems = CheckComparePaths(target, golden);
  if (!problems.empty()) return std::move(problems.front());
  ComparePlan plan;
  plan.folders = IsDirectory(target);
  if (!plan.folders) {
    if (!filter.empty()) {
      log.Warning("ranks and steps are chosen in folders only: two files are compared as they are");
    }
    RankJob job;
    job.target_json = target;
    job.golden_json = golden;
    plan.jobs.push_back(std::move(job));
    return plan;
  }
  if (HasDump(target) && HasDump(golden)) {
    AddRankFolders({}, target, golden, plan);
  } else {
    MSPROBE_ASSIGN(const Folder t, Look(target));
    MSPROBE_ASSIGN(const Folder g, Look(golden));
    MSPROBE_TRY(CheckKinds(t, g));
    if (!t.steps.empty() && !g.steps.empty()) {
      MSPROBE_TRY(PlanRoot(t.steps, g.steps, filter, plan, log));
    } else {
      if (!filter.steps.empty()) {
        log.Warning("steps are chosen in folders of steps only: all ranks here are compared");
      }
      MSPROBE_TRY(PlanStep("", target, golden, filter, plan, log));
    }
  }
  if (!plan.jobs.empty()) return plan;
  const std::string why = plan.missing.empty() ? "" : ": " + plan.missing.front().reason;
  return Error(ErrorCode::kNotFound, "no pair of ranks to compare" + why).At(target);
}

}  // namespace msprobe::app
