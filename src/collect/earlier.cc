#include "collect/earlier.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <vector>

#include "base/file.h"
#include "base/time.h"
#include "dump/journal.h"
#include "dump/reader.h"

namespace msprobe::collect {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDumpFiles[] = {"dump.json", "debug.json", "stack.json", "construct.json"};
constexpr char kTensorFolder[] = "dump_tensor_data";
constexpr char kReplaced[] = "replaced-";
constexpr size_t kNamesShown = 8;

uint64_t SizeOf(const std::string& path) {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(path, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) {
      const auto size = it->file_size(ignored);
      if (!ignored) bytes += size;
    }
  }
  return bytes;
}

// Only what a dump consists of; a file that somebody else put there stays.
Status RemoveDump(const std::string& path) {
  std::error_code error;
  for (const char* name : kDumpFiles) {
    fs::remove(JoinPath(path, name), error);
    if (error) return ErrnoError(error.value(), "remove", JoinPath(path, name));
  }
  const std::string tensors = JoinPath(path, kTensorFolder);
  if (!fs::is_directory(fs::symlink_status(tensors, error))) return {};
  for (fs::directory_iterator it(tensors, error), end; !error && it != end; it.increment(error)) {
    const std::string extension = it->path().extension().string();
    if (extension != ".pt" && extension != ".npy" && extension != ".tmp") continue;
    std::error_code removed;
    fs::remove(it->path(), removed);
    if (removed) return ErrnoError(removed.value(), "remove", it->path().string());
  }
  fs::remove(tensors, error);  // only when empty
  return {};
}

// A living process writes here.
bool InUse(const std::string& path) {
  const int fd = open(JoinPath(path, dump::kJournalName).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return false;
  const bool locked = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(fd);
  return locked;
}

int64_t ModifiedSeconds(const std::string& path) {
  struct stat info{};
  int64_t latest = 0;
  for (const char* name : kDumpFiles) {
    if (stat(JoinPath(path, name).c_str(), &info) == 0)
      latest = std::max<int64_t>(latest, info.st_mtim.tv_sec);
  }
  return latest;
}

}  // namespace

bool HoldsDump(const std::string& folder) {
  for (const char* name : kDumpFiles)
    if (PathExists(JoinPath(folder, name))) return true;
  return PathExists(JoinPath(folder, kTensorFolder));
}

// The processes of one run find each other's folder: it is younger than the dump that is to be
// moved, and has no dump of this name yet.
std::string EarlierRuns::TargetFor(const std::string& path, std::string_view name) {
  const auto holds_name = [&](const std::string& folder) {
    const auto steps = dump::ListSteps(folder);
    return steps.ok() && std::any_of(steps->begin(), steps->end(), [&](const auto& step) {
             return PathExists(JoinPath(step.path, name));
           });
  };
  const std::string least = kReplaced + LocalTimestamp(ModifiedSeconds(path));
  std::string newest;
  std::error_code error;
  for (fs::directory_iterator it(config_.dump_path, error), end; !error && it != end;
       it.increment(error)) {
    std::string found = it->path().filename().string();
    if (found.size() == least.size() && found.starts_with(kReplaced) && found > newest)
      newest = std::move(found);
  }
  if (newest >= least && !holds_name(JoinPath(config_.dump_path, newest)))
    return JoinPath(config_.dump_path, newest);
  return JoinPath(config_.dump_path,
                  kReplaced + LocalTimestamp(FreeTimestamp(config_.dump_path, {"replaced-{ts}"},
                                                           UnixSeconds())));
}

Status EarlierRuns::MoveAway(const std::string& path, int64_t step, std::string_view name) {
  const std::string below = fmt::format("step{}", step);
  if (target_.empty() || PathExists(JoinPath(JoinPath(target_, below), name)))
    target_ = TargetFor(path, name);
  const std::string parent = JoinPath(target_, below);
  MSPROBE_TRY(CreateDirectories(parent));
  if (rename(path.c_str(), JoinPath(parent, name).c_str()) != 0)
    return ErrnoError(errno, "move", path);
  rmdir(DirName(path).c_str());  // only when nothing else is there
  return {};
}

Status EarlierRuns::ClearOne(const std::string& path, int64_t step, std::string_view name) {
  switch (config_.overwrite) {
    case config::Overwrite::kRefuse:
      return Error(ErrorCode::kMismatch, "holds an earlier dump")
          .At(path)
          .Hint("choose another dump_path, or set \"overwrite\" to \"keep\" or \"replace\"");
    case config::Overwrite::kReplace:
      return RemoveDump(path);
    case config::Overwrite::kKeep:
      break;
  }
  const uint64_t bytes = said_ ? 0 : SizeOf(path);
  MSPROBE_TRY(MoveAway(path, step, name));
  if (!said_) {
    log_.Warning(fmt::format("{} held an earlier dump ({} bytes); it was moved to {}", path, bytes,
                             target_));
  }
  said_ = true;
  return {};
}

Status EarlierRuns::ClearAll(std::string_view name) {
  const auto steps = dump::ListSteps(config_.dump_path);
  if (!steps.ok()) return {};  // nothing there yet
  uint64_t bytes = 0, moved = 0;
  for (const dump::StepDir& step : *steps) {
    const std::string path = JoinPath(step.path, name);
    if (!HoldsDump(path) || InUse(path)) continue;
    if (config_.overwrite != config::Overwrite::kKeep) {
      MSPROBE_TRY(ClearOne(path, step.number, name));
      if (config_.overwrite != config::Overwrite::kReplace) continue;
      unlink(JoinPath(path, dump::kJournalName).c_str());
      if (rmdir(path.c_str()) == 0) rmdir(step.path.c_str());
      continue;
    }
    bytes += SizeOf(path);
    MSPROBE_TRY(MoveAway(path, step.number, name));
    ++moved;
  }
  if (moved > 0) {
    log_.Warning(fmt::format("{} held an earlier dump ({} bytes, {} {} of {}); it was moved to {}",
                             config_.dump_path, bytes, moved, moved == 1 ? "step" : "steps", name,
                             target_));
    said_ = true;
  }
  return {};
}

void EarlierRuns::WarnOfOthers(bool rank_known, int64_t world_size) {
  const auto steps = dump::ListSteps(config_.dump_path);
  if (!steps.ok()) return;
  std::vector<std::string> names;
  for (const dump::StepDir& step : *steps) {
    const auto ranks = dump::ListRanks(step.path);
    if (!ranks.ok()) continue;
    for (const dump::RankDir& rank : *ranks) {
      const bool foreign = rank.kind == dump::RankDir::Kind::kPlain ? rank_known
                           : rank.kind == dump::RankDir::Kind::kRank
                               ? !rank_known || (world_size > 0 && rank.number >= world_size)
                               : false;
      if (foreign && HoldsDump(rank.path) && !InUse(rank.path))
        names.push_back(JoinPath(step.name, rank.name));
    }
  }
  if (names.empty()) return;
  const size_t all = names.size();
  names.resize(std::min(all, kNamesShown));
  log_.Warning(fmt::format(
      "{} also holds {}{}, which this run will not write; a comparison would read them as part of "
      "it",
      config_.dump_path, fmt::join(names, ", "),
      all > names.size() ? fmt::format(" and {} more", all - names.size()) : ""));
}

}  // namespace msprobe::collect
