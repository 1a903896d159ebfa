#include "app/compare_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/file.h"
#include "dump/reader.h"

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
  const bool common =
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

Status PlanStep(const std::string& step, const std::string& target, const std::string& golden,
                ComparePlan& plan, LogSink& log) {
  MSPROBE_ASSIGN(const std::vector<RankDir> all_target, dump::ListRanks(target));
  MSPROBE_ASSIGN(const std::vector<RankDir> all_golden, dump::ListRanks(golden));
  std::vector<RankDir> t = OfKind(all_target, false);
  std::vector<RankDir> g = OfKind(all_golden, false);
  // Folders of processes only: process numbers say nothing about which belong together, so exactly
  // one a side is needed.
  if (t.empty()) t = OfKind(all_target, true);
  if (g.empty()) g = OfKind(all_golden, true);
  for (const auto& [side, dir] : {std::pair(&t, &target), std::pair(&g, &golden)}) {
    if (side->empty()) {
      return Error(ErrorCode::kNothingToDo, "no rank folder inside")
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
  PairRanks(step, t, g, plan, log);
  return {};
}

Status PlanRoot(const std::vector<StepDir>& target, const std::vector<StepDir>& golden,
                ComparePlan& plan, LogSink& log) {
  std::map<int64_t, std::pair<const StepDir*, const StepDir*>> all;
  for (const StepDir& s : target) all[s.number].first = &s;
  for (const StepDir& s : golden) all[s.number].second = &s;
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
        PlanStep(pair.first->name, pair.first->path, pair.second->path, plan, log);
    if (!planned.ok()) plan.missing.push_back({pair.first->name, "", planned.error().ToString()});
  }
  if (common) return {};
  return Error(ErrorCode::kMismatch, "no step number is common to both dumps")
      .Hint("give two step folders to compare different steps");
}

}  // namespace

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
                                LogSink& log) {
  std::vector<Error> problems = CheckComparePaths(target, golden);
  if (!problems.empty()) return std::move(problems.front());
  ComparePlan plan;
  plan.folders = IsDirectory(target);
  if (!plan.folders) {
    RankJob job;
    job.target_json = target;
    job.golden_json = golden;
    plan.jobs.push_back(std::move(job));
    return plan;
  }
  if (HasDump(target) && HasDump(golden)) {
    AddRankFolders({}, target, golden, plan);
  } else {
    MSPROBE_ASSIGN(const std::vector<StepDir> t, dump::ListSteps(target));
    MSPROBE_ASSIGN(const std::vector<StepDir> g, dump::ListSteps(golden));
    if (!t.empty() && !g.empty()) {
      MSPROBE_TRY(PlanRoot(t, g, plan, log));
    } else {
      MSPROBE_TRY(PlanStep("", target, golden, plan, log));
    }
  }
  if (!plan.jobs.empty()) return plan;
  const std::string why = plan.missing.empty() ? "" : ": " + plan.missing.front().reason;
  return Error(ErrorCode::kNothingToDo, "no pair of ranks to compare" + why).At(target);
}

}  // namespace msprobe::app
