#include "app/rank_progress.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace msprobe::app {
namespace {

struct Seen final : ProgressSink {
  void Update(std::string_view stage, uint64_t done, uint64_t total) override {
    lines.push_back(std::string(stage) + " " + std::to_string(done) + "/" + std::to_string(total));
  }
  std::vector<std::string> lines;
};

TEST(RankProgress, OneRankSpeaksForItself) {
  Seen seen;
  RankProgress progress(1, seen);
  progress.Of(0).Update("compare", 3, 10);
  progress.Done(0);
  EXPECT_EQ(seen.lines, std::vector<std::string>{"compare 3/10"});
}

TEST(RankProgress, RanksAddUpAndThoseToComeAreEstimated) {
  Seen seen;
  RankProgress progress(4, seen);
  progress.Of(0).Update("compare", 1, 10);  // three more like this one
  progress.Of(2).Update("compare", 5, 20);  // two of four have begun, 15 each on average
  progress.Of(2).Update("compare", 4, 20);  // a report that came late
  progress.Done(0);
  EXPECT_EQ(seen.lines,
            (std::vector<std::string>{
                "compare, 0 of 4 ranks done 1/40", "compare, 0 of 4 ranks done 6/60",
                "compare, 0 of 4 ranks done 6/60", "compare, 1 of 4 ranks done 15/60"}));
}

TEST(RankProgress, RanksWithoutReportsAreCounted) {
  Seen seen;
  RankProgress progress(2, seen);
  progress.Done(1);
  progress.Done(1);
  progress.Done(0);
  EXPECT_EQ(seen.lines, (std::vector<std::string>{"ranks 1/2", "ranks 2/2"}));
}

}  // namespace
}  // namespace msprobe::app
