// Collectives of one step over all of its ranks, for the search for the operator at fault.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/compare_app.h"
#include "culprit/collectives.h"

namespace msprobe::app {

// Worked out when first asked for, and kept for one step. Not thread-safe.
class StepCollectives {
 public:
  // `ranks` must outlive it. `one_dump`: there is no golden side.
  StepCollectives(const std::vector<RankOutcome>& ranks, bool one_dump)
      : ranks_(ranks), one_dump_(one_dump) {}

  // For culprit::Input of one of the ranks. Nothing is known of a rank that is alone in its step.
  std::function<culprit::CollectivesOfRank()> Of(const RankOutcome& rank);

 private:
  void Judge(const std::string& step);

  const std::vector<RankOutcome>& ranks_;
  bool one_dump_;
  bool known_ = false;
  std::string step_;
  std::vector<const RankOutcome*> members_;
  std::vector<culprit::CollectiveScores> target_, golden_;  // of members_
};

}  // namespace msprobe::app
