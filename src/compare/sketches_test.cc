// Sketches in comparisons of recorded statistics: figures, refusals, and what the rules make of
// them.
#include "compare/sketches.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "compare/test_dump.h"
#include "metrics/tensor_stats.h"

namespace msprobe::compare {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using Bits = SketchPair::Bits;

class SketchesTest : public DumpTest {
 protected:
  static TensorView ViewOf(const std::vector<float>& x, const Shape& shape) {
    return {reinterpret_cast<const std::byte*>(x.data()), DType::kF32, shape, {}};
  }
  // A leaf as the collector writes it.
  static std::string Recorded(const std::vector<float>& x,
                              const metrics::SketchSetting& setting = {}) {
    const Shape shape = {static_cast<int64_t>(x.size())};
    const metrics::TensorStats s = metrics::StatsOf(ViewOf(x, shape));
    uint64_t hash = 0;
    const metrics::Sketch sketch = metrics::SketchOf(ViewOf(x, shape), setting, &hash);
    std::string out =
        R"({"type": "torch.Tensor", "dtype": "torch.float32", "shape": )" + ShapeText(shape);
    for (const auto& [key, value] : {std::pair("Max", &s.max), std::pair("Min", &s.min),
                                     std::pair("Mean", &s.mean), std::pair("Norm", &s.norm)}) {
      out += std::string(", \"") + key + "\": ";
      json::AppendDouble(out, std::get<double>(*value));
    }
    out += fmt::format(R"(, "requires_grad": false, "hash64": "{:016x}", "sketch": )", hash);
    metrics::AppendSketch(out, sketch);
    return out + "}";
  }
  static std::vector<float> Normal(size_t n, uint32_t seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    std::vector<float> x(n);
    for (float& v : x) v = normal(generator);
    return x;
  }
  Result<Comparison> Default(const std::string& target, const std::string& golden) {
    WriteBoth("statistics", Call("Torch.add.0.forward", target, target),
              Call("Torch.add.0.forward", golden, golden));
    Options options;
    options.rules = RuleSet::kDefault;
    return Compare(input(), options);
  }
};

constexpr std::string_view kInput = "Torch.add.0.forward.input.0";

TEST_F(SketchesTest, DistancesOfRecordedTensors) {
  std::vector<float> x = Normal(10000, 1), y = x;
  double difference = 0, norm = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    y[i] = x[i] * (i % 2 == 0 ? 1.01f : 0.99f);
    const double d = static_cast<double>(x[i]) - static_cast<double>(y[i]);
    difference += d * d;
    norm += static_cast<double>(y[i]) * static_cast<double>(y[i]);
  }
  const Result<Comparison> c = Default(Recorded(x), Recorded(y));
  ASSERT_TRUE(c.ok());
  EXPECT_TRUE(c->shows_sketch);
  const Row& row = *FindRow(*c, kInput);
  ASSERT_TRUE(row.sketch->distance.has_value());
  EXPECT_NEAR(row.sketch->distance->distance, std::sqrt(difference), 0.12 * std::sqrt(difference));
  EXPECT_NEAR(row.sketch->distance->relative, std::sqrt(difference / norm),
              0.12 * std::sqrt(difference / norm));
  EXPECT_FALSE(row.sketch->distance->own_norms);
  EXPECT_EQ(row.sketch->bits, Bits::kDifferent);
}

TEST_F(SketchesTest, EqualBitsByHash) {
  const std::vector<float> x = Normal(1000, 2);
  const Result<Comparison> c = Default(Recorded(x), Recorded(x));
  const Row& row = *FindRow(*c, kInput);
  EXPECT_EQ(row.sketch->bits, Bits::kEqual);
  EXPECT_TRUE(row.sketch->distance->below_floor);
  EXPECT_EQ(row.verdict, Verdict::kPass);
}

// One unit in the last place of one element: the slots may round to the same floats, the bits
// differ.
TEST_F(SketchesTest, EqualSlotsAreNoEqualBits) {
  std::vector<float> x(100000, 1024.0f), y = x;
  y[5] = std::nextafter(y[5], 0.0f);
  const Result<Comparison> c = Default(Recorded(x), Recorded(y));
  const Row& row = *FindRow(*c, kInput);
  EXPECT_TRUE(row.sketch->distance->below_floor);
  EXPECT_EQ(row.sketch->bits, Bits::kDifferent);
}

// Statistics alone cannot see it.
TEST_F(SketchesTest, APermutationIsFound) {
  const std::vector<float> x = Normal(1000, 3);
  std::vector<float> y = x;
  std::reverse(y.begin(), y.end());
  const Result<Comparison> c = Default(Recorded(y), Recorded(x));
  const Row& row = *FindRow(*c, kInput);
  EXPECT_EQ(row.verdict, Verdict::kError);
  ASSERT_FALSE(row.findings.empty());
  EXPECT_EQ(row.findings[0].rule, QRule::kQ4);
  EXPECT_NEAR(row.findings[0].value, std::sqrt(2.0), 0.3);
  EXPECT_TRUE(c->first_bad.has_value());
}

TEST_F(SketchesTest, IntegersThatDifferByHashOnly) {
  const auto leaf = [](const std::string& hash) {
    return R"({"type": "torch.Tensor", "dtype": "torch.int64", "shape": [3], "Max": 2, "Min": 0, )"
           R"("Mean": 1.0, "Norm": 2.23606797749979, "requires_grad": false, "hash64": ")" +
           hash + "\"}";
  };
  const Result<Comparison> c = Default(leaf("00000000000000aa"), leaf("00000000000000ab"));
  ASSERT_TRUE(c.ok());
  EXPECT_FALSE(c->shows_sketch);
  const Row& row = *FindRow(*c, "Torch.add.0.forward.output.0");
  EXPECT_NE(row.verdict, Verdict::kPass);
  ASSERT_FALSE(row.findings.empty());
  EXPECT_EQ(row.findings[0].rule, QRule::kQ2);
}

TEST_F(SketchesTest, AnotherSeedIsRefusedAndSaid) {
  const std::vector<float> x = Normal(1000, 4);
  const Result<Comparison> c = Default(Recorded(x, {256, 2}), Recorded(x));
  ASSERT_TRUE(c.ok());
  EXPECT_TRUE(c->shows_sketch);
  EXPECT_FALSE(FindRow(*c, kInput)->sketch->distance.has_value());
  EXPECT_THAT(c->notes,
              Contains(HasSubstr("the sketches of 2 pairs cannot be compared, the first is "
                                 "Torch.add.0.forward.input.0: the sketches have another "
                                 "seed: 2 and 1")));
}

TEST_F(SketchesTest, ASketchThatLiesIsNamedAndNotUsed) {
  const std::vector<float> x = Normal(1000, 5);
  std::string bad = Recorded(x);
  bad.replace(bad.find("\"k\": 256"), 8, "\"k\": 128");
  const Result<Comparison> c = Default(bad, Recorded(x));
  ASSERT_TRUE(c.ok());
  EXPECT_FALSE(c->shows_sketch);
  EXPECT_FALSE(FindRow(*c, kInput)->sketch->distance.has_value());
  EXPECT_THAT(c->notes,
              Contains(HasSubstr("target: 2 sketches cannot be read, the first is "
                                 "Torch.add.0.forward.input.0: sketch.data: 1368 characters "
                                 "where 128 values are 684")));
}

TEST_F(SketchesTest, TheOtherRuleSetsStayByStatistics) {
  const std::vector<float> x = Normal(1000, 6);
  std::vector<float> y = x;
  std::reverse(y.begin(), y.end());
  WriteBoth("statistics", Call("Torch.add.0.forward", Recorded(x), Recorded(x)),
            Call("Torch.add.0.forward", Recorded(y), Recorded(y)));
  const Result<Comparison> c = Compare(input());  // base
  ASSERT_TRUE(c.ok());
  EXPECT_EQ(FindRow(*c, kInput)->verdict, Verdict::kPass);
  EXPECT_GT(FindRow(*c, kInput)->sketch->distance->relative, 1);
}

}  // namespace
}  // namespace msprobe::compare
