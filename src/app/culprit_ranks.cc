#include "app/culprit_ranks.h"

#include <charconv>

#include "base/file.h"

namespace msprobe::app {
namespace {

// Of a folder "rank3" or "rank"; negative: it has no number that other ranks would know it by.
int64_t NumberOf(std::string_view folder) {
  constexpr std::string_view kRank = "rank";
  if (!folder.starts_with(kRank)) return -1;
  folder.remove_prefix(kRank.size());
  if (folder.empty()) return 0;
  int64_t out = -1;
  const auto [end, error] = std::from_chars(folder.data(), folder.data() + folder.size(), out);
  return error == std::errc() && end == folder.data() + folder.size() ? out : -1;
}

}  // namespace

void StepCollectives::Judge(const std::string& step) {
  known_ = true;
  step_ = step;
  members_.clear();
  std::vector<culprit::RankDump> target;
  std::vector<culprit::RankDump> golden;
  for (const RankOutcome& r : ranks_) {
    if (r.job.step != step || BaseName(r.job.target_json) == "debug.json") continue;
    members_.push_back(&r);
    target.push_back({NumberOf(r.job.target_rank), r.job.target_json});
    golden.push_back({NumberOf(r.job.golden_rank), r.job.golden_json});
  }
  if (members_.size() < 2) members_.clear();
  if (members_.empty()) return;
  // Without a golden side nothing would contradict a wrong idea of how many ranks there are.
  target_ = culprit::JudgeCollectives(target, one_dump_);
  golden_.clear();
  if (!one_dump_) golden_ = culprit::JudgeCollectives(golden, false);
}

std::function<culprit::CollectivesOfRank()> StepCollectives::Of(const RankOutcome& rank) {
  return [this, &rank]() -> culprit::CollectivesOfRank {
    if (!known_ || step_ != rank.job.step) Judge(rank.job.step);
    for (size_t i = 0; i < members_.size(); ++i) {
      if (members_[i] != &rank) continue;
      return {&target_[i], one_dump_ ? nullptr : &golden_[i]};
    }
    return {};
  };
}

}  // namespace msprobe::app
