// How the work on tensors is shared: by size, over all threads, with the same figures whatever
// their number (D42).
#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "compare/test_dump.h"

namespace msprobe::compare {
namespace {

class Schedule : public DumpTest {
 protected:
  // Outputs of `elements` each, in report order; the golden side is off by one in the last element.
  void WriteOutputs(const std::vector<int64_t>& elements) {
    std::string data;
    for (size_t i = 0; i < elements.size(); ++i) {
      const std::string name = fmt::format("Torch.op.out{}", i);
      std::vector<float> values(static_cast<size_t>(elements[i]));
      for (size_t k = 0; k < values.size(); ++k) values[k] = static_cast<float>(k % 97) * 0.37f;
      WriteTensor("target", name, DType::kF32, {elements[i]}, values);
      values.back() += 1;
      WriteTensor("golden", name, DType::kF32, {elements[i]}, values);
      const std::string shape = fmt::format("[{}]", elements[i]);
      if (i > 0) data += ',';
      data += Call(fmt::format("Torch.op.{}.forward", i), "",
                   LeafJson("torch.float32", shape, name + ".pt"));
    }
    WriteBoth("tensor", data, data);
  }
};

// Ends the run when the first pair is done.
class StopAfterFirst final : public ProgressSink {
 public:
  void Update(std::string_view, uint64_t, uint64_t) override { cancel.Cancel(); }
  CancelToken cancel;
};

TEST_F(Schedule, TheLargestPairComesFirst) {
  WriteOutputs({10, 300, 20, 5000, 40});
  StopAfterFirst stop;
  Options options;
  options.workers = 1;
  const auto result = CompareRank(input(), options, NullLog(), stop, &stop.cancel);
  ASSERT_TRUE(result.ok()) << result.error().ToString();
  ASSERT_EQ(result->rows.size(), 5u);
  for (size_t i = 0; i < result->rows.size(); ++i) {
    EXPECT_EQ(result->rows[i].gate == Gate::kNotReached, i != 3) << i;
  }
}

// The first two pairs that end wait for each other: one thread alone would never get there.
class TwoAtOnce final : public ProgressSink {
 public:
  void Update(std::string_view, uint64_t, uint64_t) override {
    std::unique_lock lock(mutex_);
    if (++arrived_ >= 2) return changed_.notify_all();
    met = changed_.wait_for(lock, std::chrono::seconds(60), [&] { return arrived_ >= 2; });
  }
  bool met = false;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int arrived_ = 0;
};

TEST_F(Schedule, PairsAreComparedSideBySide) {
  WriteOutputs({100, 100, 100, 100});
  TwoAtOnce both;
  Options options;
  options.workers = 2;
  const auto result = CompareRank(input(), options, NullLog(), both, nullptr);
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(both.met);
}

TEST_F(Schedule, FiguresDoNotDependOnTheNumberOfThreads) {
  WriteOutputs({1, 7, 1000, 33, 5 << 20, 4096, 2, 70000});
  Options options;
  options.workers = 1;
  const auto one = Compare(input(), options);
  ASSERT_TRUE(one.ok());
  for (const unsigned workers : {2u, 3u, 8u}) {
    options.workers = workers;
    const auto many = Compare(input(), options);
    ASSERT_TRUE(many.ok());
    ASSERT_EQ(many->rows.size(), one->rows.size());
    for (size_t i = 0; i < one->rows.size(); ++i) {
      const metrics::PairMetrics &a = *one->rows[i].metrics, &b = *many->rows[i].metrics;
      EXPECT_EQ(a.cosine, b.cosine) << i;
      EXPECT_EQ(a.euclidean, b.euclidean) << i;
      EXPECT_EQ(a.max_rel, b.max_rel) << i;
      EXPECT_EQ(a.max_abs, b.max_abs) << i;
      EXPECT_EQ(one->rows[i].verdict, many->rows[i].verdict) << i;
    }
  }
}

}  // namespace
}  // namespace msprobe::compare
