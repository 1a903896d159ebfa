// Where a step's files go: {dump_path}/step{S}/rank{R}, who owns the folder, and what becomes of an
// earlier run's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/log.h"
#include "base/result.h"
#include "collect/earlier.h"
#include "config/collect_config.h"

namespace msprobe::collect {

// A rank folder held by this process. Its journal file is locked as long as the object lives; the
// lock is what tells others that the folder is in use (decisions.md 10).
class RankFolder {
 public:
  RankFolder() = default;
  RankFolder(RankFolder&& other) noexcept { *this = std::move(other); }
  RankFolder& operator=(RankFolder&& other) noexcept;
  ~RankFolder();

  const std::string& path() const { return path_; }
  bool open() const { return !path_.empty(); }
  int journal_fd() const { return fd_; }  // -1 when the file system cannot lock
  // Removes the journal and gives the folder free: a clean end.
  void Release();
  // Gives the folder free and leaves the journal: the process could not finish, or is a forked
  // child.
  void Abandon();

 private:
  friend class Folders;
  std::string path_;
  int fd_ = -1;
};

class Folders {
 public:
  Folders(const config::CollectConfig& config, LogSink& log)
      : config_(config), log_(log), earlier_(config, log) {}
  ~Folders() { GiveUpNames(); }

  // Makes and claims the folder of `step`: `rank{R}`, or `rank` while the rank is unknown, or
  // `proc{pid}` when another living process holds that name. The first claim of a name clears away
  // what earlier runs wrote under it, in all steps, as the configuration says. A name that was
  // claimed stays this process's own until GiveUpNames(), also between two steps. `world_size` 0:
  // unknown. After an error nothing new is left on the disk.
  Result<RankFolder> Claim(int64_t step, std::optional<int64_t> rank, int64_t world_size);
  // The error of Claim() when `overwrite` is "refuse" and an earlier dump is there.
  Status RefuseEarlier(std::optional<int64_t> rank);
  // The rank has become known: renames the folder to `rank{R}`. When that is impossible the folder
  // stays, and a warning says so.
  void Rename(RankFolder& folder, int64_t step, int64_t rank);
  void GiveUpNames();
  void TakeOver(Folders& before);  // its names
  void Abandon();                  // in a forked child: the names are the parent's

 private:
  enum class Lock : uint8_t { kMine, kTaken, kUnavailable };
  Result<Lock> TryLock(RankFolder& folder, const std::string& path);
  // Whether no other living process has the name; clears away earlier runs at the first time.
  Result<bool> Own(const std::string& name);
  Result<RankFolder> ClaimNamed(int64_t step, const std::string& name, Lock& lock);
  std::string StepPath(int64_t step) const;
  std::string NameLock(std::string_view name) const;

  const config::CollectConfig& config_;
  LogSink& log_;
  EarlierRuns earlier_;
  std::unordered_map<std::string, int> names_;  // own: descriptor of the lock, -1 without one
  bool said_taken_ = false, looked_for_others_ = false;
};

}  // namespace msprobe::collect
