#include "collect/folders.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/time.h"
#include "dump/journal.h"

namespace msprobe::collect {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDumpFiles[] = {"dump.json", "debug.json", "stack.json", "construct.json"};
constexpr char kTensorFolder[] = "dump_tensor_data";

bool HoldsDump(const std::string& path) {
  for (const char* name : kDumpFiles)
    if (PathExists(JoinPath(path, name))) return true;
  return PathExists(JoinPath(path, kTensorFolder));
}

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

}  // namespace

// ---- RankFolder
// ------------------------------------------------------------------------------------

RankFolder& RankFolder::operator=(RankFolder&& other) noexcept {
  if (this != &other) {
    Abandon();
    path_ = std::exchange(other.path_, {});
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

RankFolder::~RankFolder() { Abandon(); }

void RankFolder::Release() {
  if (fd_ >= 0) unlink(JoinPath(path_, dump::kJournalName).c_str());
  Abandon();
}

void RankFolder::Abandon() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
  path_.clear();
}

// ---- Folders
// ---------------------------------------------------------------------------------------

std::string Folders::StepPath(int64_t step) const {
  return JoinPath(config_.dump_path, fmt::format("step{}", step));
}

Result<Folders::Lock> Folders::TryLock(RankFolder& folder, const std::string& path) {
  MSPROBE_TRY(CreateDirectories(path));
  const std::string journal = JoinPath(path, dump::kJournalName);
  for (int attempt = 0; attempt < 20; ++attempt) {
    const int fd = open(journal.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return ErrnoError(errno, "create", journal);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      const int err = errno;
      close(fd);
      return err == EWOULDBLOCK ? Lock::kTaken : Lock::kUnavailable;
    }
    // Between open and lock, the holder before us may have removed the file or moved the folder;
    // then this lock guards nothing.
    struct stat mine{}, there{};
    if (fstat(fd, &mine) == 0 && stat(journal.c_str(), &there) == 0 &&
        mine.st_ino == there.st_ino && mine.st_dev == there.st_dev) {
      folder.path_ = path;
      folder.fd_ = fd;
      return Lock::kMine;
    }
    close(fd);
    MSPROBE_TRY(CreateDirectories(path));
  }
  return Lock::kTaken;
}

Status Folders::MoveAway(const std::string& path, int64_t step, std::string_view name) {
  const uint64_t bytes = said_moved_ ? 0 : SizeOf(path);
  const std::string pattern = fmt::format("replaced-{{ts}}/step{}/{}", step, name);
  const std::string stamp =
      LocalTimestamp(FreeTimestamp(config_.dump_path, {pattern}, UnixSeconds()));
  const std::string parent =
      JoinPath(config_.dump_path, fmt::format("replaced-{}/step{}", stamp, step));
  MSPROBE_TRY(CreateDirectories(parent));
  const std::string target = JoinPath(parent, name);
  if (rename(path.c_str(), target.c_str()) != 0) return ErrnoError(errno, "move", path);
  if (!said_moved_) {
    log_.Warning(fmt::format(
        "{} held an earlier dump ({} bytes); it was moved to {}. Earlier dumps of other steps are "
        "moved likewise.",
        path, bytes, target));
    said_moved_ = true;
  }
  return {};
}

Status Folders::ClearTheWay(const std::string& path, int64_t step, std::string_view name) {
  switch (config_.overwrite) {
    case config::Overwrite::kRefuse:
      return Error(ErrorCode::kMismatch, "holds an earlier dump")
          .At(path)
          .Hint("choose another dump_path, or set \"overwrite\" to \"keep\" or \"replace\"");
    case config::Overwrite::kReplace:
      return RemoveDump(path);
    case config::Overwrite::kKeep:
      return MoveAway(path, step, name);
  }
  return {};
}

Result<RankFolder> Folders::Claim(int64_t step, std::optional<int64_t> rank) {
  std::string name = rank.has_value() ? fmt::format("rank{}", *rank) : std::string("rank");
  std::string path = JoinPath(StepPath(step), name);
  // Looked at before the journal is touched: an earlier run that was killed has left one that
  // belongs to its dump.
  const bool journal_was_there = PathExists(JoinPath(path, dump::kJournalName));
  RankFolder folder;
  MSPROBE_ASSIGN(Lock lock, TryLock(folder, path));
  if (lock == Lock::kTaken) {
    const std::string other = fmt::format("proc{}", getpid());
    if (!said_taken_) {
      log_.Warning(fmt::format("{} is in use by another process; this one writes to {} instead",
                               path, other));
      said_taken_ = true;
    }
    name = other;
    path = JoinPath(StepPath(step), name);
    MSPROBE_ASSIGN(lock, TryLock(folder, path));
    if (lock == Lock::kTaken) {
      return Error(ErrorCode::kMismatch, "is in use by another debugger of this process")
          .At(path)
          .Hint("choose another dump_path");
    }
  }
  folder.path_ = path;
  if (!HoldsDump(path)) return folder;
  if (config_.overwrite == config::Overwrite::kKeep) {
    if (!journal_was_there) unlink(JoinPath(path, dump::kJournalName).c_str());
    MSPROBE_TRY(ClearTheWay(path, step, name));
    folder.Abandon();
    MSPROBE_ASSIGN(lock, TryLock(folder, path));
    if (lock == Lock::kTaken)
      return Error(ErrorCode::kMismatch, "was taken by another process meanwhile").At(path);
    folder.path_ = path;
    return folder;
  }
  Status cleared = ClearTheWay(path, step, name);
  if (!cleared.ok()) {
    if (!journal_was_there) folder.Release();
    return std::move(cleared).error();
  }
  return folder;
}

void Folders::Rename(RankFolder& folder, int64_t step, int64_t rank) {
  const std::string name = fmt::format("rank{}", rank);
  const std::string target = JoinPath(StepPath(step), name);
  if (target == folder.path()) return;
  const auto rename_it = [&]() -> Status {
    if (PathExists(target)) {
      RankFolder probe;
      MSPROBE_ASSIGN(const Lock lock, TryLock(probe, target));
      if (lock == Lock::kTaken)
        return Error(ErrorCode::kMismatch, "is in use by another process").At(target);
      if (HoldsDump(target)) {
        MSPROBE_TRY(ClearTheWay(target, step, name));
      }
      if (lock == Lock::kMine) unlink(JoinPath(target, dump::kJournalName).c_str());
      if (PathExists(target) && rmdir(target.c_str()) != 0)
        return ErrnoError(errno, "replace", target);
    }
    if (rename(folder.path_.c_str(), target.c_str()) != 0)
      return ErrnoError(errno, "rename", folder.path_);
    return {};
  };
  Status renamed = rename_it();
  if (renamed.ok()) {
    folder.path_ = target;
  } else {
    log_.Warning(fmt::format("the rank is {} now, but this step stays in {}: {}", rank,
                             folder.path(), renamed.error().ToString()));
  }
}

}  // namespace msprobe::collect
