#include "cli/progress.h"

#include <gtest/gtest.h>

namespace msprobe::cli {
namespace {

TEST(Progress, ATerminalSeesRateAndRemainingTime) {
  Progress p(true);
  EXPECT_EQ(p.Line("tensors", 0, 600, 100), "tensors: 0 of 600 (0%)");
  EXPECT_EQ(p.Line("tensors", 1, 600, 100.05), std::nullopt);  // ten times a second at most
  EXPECT_EQ(p.Line("tensors", 2, 600, 100.2), "tensors: 2 of 600 (0%)");  // too early for a rate
  // 120 in 4 s are 30 a second: 480 are left for 16 s.
  EXPECT_EQ(p.Line("tensors", 120, 600, 104), "tensors: 120 of 600 (20%), 30/s, 16 s left");
  EXPECT_EQ(p.Line("tensors", 600, 600, 120), "tensors: 600 of 600 (100%)");
}

TEST(Progress, ElsewhereALineEveryTenSeconds) {
  Progress p(false);
  EXPECT_EQ(p.Line("read", 0, 50, 7), std::nullopt);
  EXPECT_EQ(p.Line("read", 4, 50, 16.9), std::nullopt);
  EXPECT_EQ(p.Line("read", 5, 50, 17), "read: 5 of 50 (10%), 0.5/s, 1 min 30 s left");
  EXPECT_EQ(p.Line("read", 9, 50, 26), std::nullopt);
}

TEST(Progress, NewWorkBeginsWithANewRate) {
  Progress p(true);
  (void)p.Line("a", 90, 100, 0);
  EXPECT_EQ(p.Line("b", 1, 10, 50), "b: 1 of 10 (10%)");
  EXPECT_EQ(p.Line("b", 3, 10, 52), "b: 3 of 10 (30%), 1.0/s, 7 s left");
}

TEST(Progress, NothingToDoIsDone) {
  Progress p(true);
  EXPECT_EQ(p.Line("a", 0, 0, 0), "a: 0 of 0 (100%)");
}

TEST(Progress, Durations) {
  EXPECT_EQ(Duration(0.2), "1 s");
  EXPECT_EQ(Duration(59), "59 s");
  EXPECT_EQ(Duration(725), "12 min 5 s");
  EXPECT_EQ(Duration(7380), "2 h 3 min");
}

}  // namespace
}  // namespace msprobe::cli
