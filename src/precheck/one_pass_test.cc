// All figures of a pair come from one pass over it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "precheck/metrics.h"
#include "tensor/watched_test.h"

namespace msprobe::precheck {
namespace {

constexpr size_t kPages = 64;
constexpr size_t kOpen = 6;  // of one array: what a block spans, and what was read before it

class OnePass : public testing::Test {
 protected:
  OnePass() {
    auto* const bench = reinterpret_cast<double*>(bench_.data());
    auto* const device = reinterpret_cast<double*>(device_.data());
    for (size_t i = 0; i < count_; ++i) {
      bench[i] = std::sin(static_cast<double>(i));
      device[i] = bench[i] * (i % 3 == 0 ? 1.001 : 1);
    }
  }
  TensorView ViewOf(const WatchedMemory& memory) const {
    return {memory.data(), DType::kF64, shape_, {}};
  }

  WatchedMemory bench_{kPages, kOpen}, device_{kPages, kOpen};
  size_t count_ = bench_.bytes() / sizeof(double);
  Shape shape_ = {static_cast<int64_t>(count_)};
};

TEST_F(OnePass, AllFiguresOfAPairReadItOnce) {
  const Watch watch({&bench_, &device_});
  const Figures f = FiguresOf(ViewOf(bench_), ViewOf(device_));
  EXPECT_EQ(f.count, count_);
  EXPECT_GT(f.unequal, 0u);
  for (const WatchedMemory* memory : {&bench_, &device_}) {
    EXPECT_EQ(memory->most_reads(), 1);
    EXPECT_EQ(memory->fewest_reads(), 1);
  }
}

// The watch sees a second pass.
TEST_F(OnePass, ASecondPassIsCounted) {
  const Watch watch({&bench_, &device_});
  FiguresOf(ViewOf(bench_), ViewOf(device_));
  FiguresOf(ViewOf(bench_), ViewOf(device_));
  EXPECT_EQ(bench_.most_reads(), 2);
  EXPECT_EQ(device_.most_reads(), 2);
}

}  // namespace
}  // namespace msprobe::precheck
