#include "collect/folders.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/file.h"
#include "dump/journal.h"

namespace msprobe::collect {
namespace {

struct LockFile {
  int fd = -1;
  int err = 0;
};

// Opens and locks `path`, whose folder is made. fd -1: EWOULDBLOCK when another has it, another
// error when it cannot be locked or made.
LockFile OpenLocked(const std::string& path) {
  int err = EWOULDBLOCK;
  for (int attempt = 0; attempt < 20; ++attempt) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0664);
    if (fd < 0) {
      err = errno;
      // Another process clears an empty step folder away at this moment.
      if (err == ENOENT && CreateDirectories(DirName(path)).ok()) continue;
      return {-1, err};
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      err = errno == EWOULDBLOCK ? EWOULDBLOCK : ENOLCK;
      close(fd);
      return {-1, err};
    }
    // Between open and lock, the holder before us may have removed the file or moved the folder;
    // then this lock guards nothing.
    struct stat mine{}, there{};
    if (fstat(fd, &mine) == 0 && stat(path.c_str(), &there) == 0 && mine.st_ino == there.st_ino &&
        mine.st_dev == there.st_dev)
      return {fd, 0};
    close(fd);
  }
  return {-1, err};
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

std::string Folders::NameLock(std::string_view name) const {
  return JoinPath(config_.dump_path, fmt::format(".msprobe_{}.lock", name));
}

Result<Folders::Lock> Folders::TryLock(RankFolder& folder, const std::string& path) {
  Status made = CreateDirectories(path);
  if (!made.ok() && made.error().code == ErrorCode::kNotFound) made = CreateDirectories(path);
  if (!made.ok()) {
    rmdir(DirName(path).c_str());  // when empty
    return std::move(made).error();
  }
  const std::string journal = JoinPath(path, dump::kJournalName);
  const LockFile lock = OpenLocked(journal);
  if (lock.fd < 0) {
    if (lock.err == EWOULDBLOCK) return Lock::kTaken;
    if (lock.err == ENOLCK) return Lock::kUnavailable;
    if (rmdir(path.c_str()) == 0) rmdir(DirName(path).c_str());
    return ErrnoError(lock.err, "create", journal);
  }
  folder.path_ = path;
  folder.fd_ = lock.fd;
  return Lock::kMine;
}

Result<bool> Folders::Own(const std::string& name) {
  if (names_.contains(name)) return true;
  MSPROBE_TRY(CreateDirectories(config_.dump_path));
  const std::string path = NameLock(name);
  const LockFile lock = OpenLocked(path);
  if (lock.fd < 0 && lock.err == EWOULDBLOCK) return false;
  if (lock.fd < 0 && lock.err != ENOLCK) return ErrnoError(lock.err, "create", path);
  Status cleared = earlier_.ClearAll(name);
  if (!cleared.ok()) {
    if (lock.fd >= 0) {
      unlink(path.c_str());
      close(lock.fd);
    }
    return std::move(cleared).error();
  }
  names_.emplace(name, lock.fd);
  return true;
}

void Folders::GiveUpNames() {
  for (const auto& [name, fd] : names_)
    if (fd >= 0) unlink(NameLock(name).c_str());
  Abandon();
}

void Folders::TakeOver(Folders& before) {
  if (before.config_.dump_path == config_.dump_path) names_ = std::move(before.names_);
  before.GiveUpNames();
}

void Folders::Abandon() {
  for (const auto& [name, fd] : names_)
    if (fd >= 0) close(fd);
  names_.clear();
}

Result<RankFolder> Folders::ClaimNamed(int64_t step, const std::string& name, Lock& lock) {
  const std::string path = JoinPath(StepPath(step), name);
  // Looked at before the journal is touched: an earlier run that was killed has left one that
  // belongs to its dump.
  const bool journal_was_there = PathExists(JoinPath(path, dump::kJournalName));
  RankFolder folder;
  MSPROBE_ASSIGN(lock, TryLock(folder, path));
  if (lock == Lock::kTaken) return folder;
  folder.path_ = path;
  if (!HoldsDump(path)) return folder;
  if (config_.overwrite == config::Overwrite::kKeep) {
    if (!journal_was_there) unlink(JoinPath(path, dump::kJournalName).c_str());
    MSPROBE_TRY(earlier_.ClearOne(path, step, name));
    folder.Abandon();
    MSPROBE_ASSIGN(lock, TryLock(folder, path));
    if (lock == Lock::kTaken)
      return Error(ErrorCode::kMismatch, "was taken by another process meanwhile").At(path);
    folder.path_ = path;
    return folder;
  }
  Status cleared = earlier_.ClearOne(path, step, name);
  if (!cleared.ok()) {
    if (!journal_was_there) folder.Release();
    return std::move(cleared).error();
  }
  return folder;
}

Status Folders::RefuseEarlier(std::optional<int64_t> rank) {
  const std::string name = rank.has_value() ? fmt::format("rank{}", *rank) : std::string("rank");
  const auto own = Own(name);
  if (!own.ok() && own.error().code == ErrorCode::kMismatch) return own.error();
  return {};  // what else is wrong shows at Claim()
}

Result<RankFolder> Folders::Claim(int64_t step, std::optional<int64_t> rank, int64_t world_size) {
  const std::string name = rank.has_value() ? fmt::format("rank{}", *rank) : std::string("rank");
  MSPROBE_ASSIGN(const bool own, Own(name));
  if (!looked_for_others_ && rank.value_or(0) == 0)
    earlier_.WarnOfOthers(rank.has_value(), world_size);
  looked_for_others_ = true;
  Lock lock = Lock::kTaken;
  RankFolder folder;
  if (own) {
    MSPROBE_ASSIGN(folder, ClaimNamed(step, name, lock));
  }
  if (lock == Lock::kTaken) {
    const std::string other = fmt::format("proc{}", getpid());
    if (!said_taken_) {
      log_.Warning(fmt::format("{} is in use by another process; this one writes to {} instead",
                               JoinPath(StepPath(step), name), other));
      said_taken_ = true;
    }
    MSPROBE_ASSIGN(const bool own_other, Own(other));
    if (own_other) {
      MSPROBE_ASSIGN(folder, ClaimNamed(step, other, lock));
    }
    if (lock == Lock::kTaken) {
      return Error(ErrorCode::kMismatch, "is in use by another debugger of this process")
          .At(JoinPath(StepPath(step), other))
          .Hint("choose another dump_path");
    }
  }
  return folder;
}

void Folders::Rename(RankFolder& folder, int64_t step, int64_t rank) {
  const std::string name = fmt::format("rank{}", rank);
  const std::string target = JoinPath(StepPath(step), name);
  if (target == folder.path()) return;
  const auto rename_it = [&]() -> Status {
    MSPROBE_ASSIGN(const bool own, Own(name));
    if (!own) return Error(ErrorCode::kMismatch, "is in use by another process").At(target);
    if (PathExists(target)) {
      RankFolder probe;
      MSPROBE_ASSIGN(const Lock lock, TryLock(probe, target));
      if (lock == Lock::kTaken)
        return Error(ErrorCode::kMismatch, "is in use by another process").At(target);
      if (HoldsDump(target)) {
        MSPROBE_TRY(earlier_.ClearOne(target, step, name));
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
