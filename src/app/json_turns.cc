#include "app/json_turns.h"

#include <fmt/format.h>

#include <utility>

#include "base/file.h"

namespace msprobe::app {

Status JsonTurns::Add(size_t rank, const std::function<Status(JsonRows&)>& write) {
  bool now = false;
  {
    const std::lock_guard lock(mutex_);
    now = rank == turn_;
  }
  if (now) return write(rows_);  // nobody else writes there before this rank has ended
  const std::string path = JoinPath(folder_, fmt::format(".msprobe_rows_{}", rank));
  MSPROBE_ASSIGN(std::unique_ptr<JsonRows> own, JsonRows::Create(path));
  MSPROBE_TRY(write(*own));
  const std::lock_guard lock(mutex_);
  waiting_[rank] = std::move(own);
  return {};
}

Status JsonTurns::Ended(size_t rank) {
  const std::lock_guard lock(mutex_);
  ended_[rank] = true;
  while (turn_ < ended_.size() && ended_[turn_]) {
    const auto it = waiting_.find(turn_++);
    if (it == waiting_.end()) continue;
    const std::unique_ptr<JsonRows> rows = std::move(it->second);
    waiting_.erase(it);
    MSPROBE_TRY(rows->CopyTo(rows_));
  }
  return {};
}

Status JsonTurns::Finish() {
  const std::lock_guard lock(mutex_);
  for (const auto& [rank, rows] : waiting_) MSPROBE_TRY(rows->CopyTo(rows_));
  waiting_.clear();
  return {};
}

}  // namespace msprobe::app
