#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "metrics/pair_metrics.h"
#include "metrics/tensor_stats.h"

namespace msprobe::metrics {
namespace {

using kernels::PairErrors;
using kernels::WorkType;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <class T>
TensorStats StatsOfVector(const std::vector<T>& values, DType dtype, Shape shape) {
  return StatsOf({reinterpret_cast<const std::byte*>(values.data()), dtype, shape, {}});
}

PairErrors ErrorsOf(const std::vector<double>& a, const std::vector<double>& b) {
  return kernels::PairErrorsOf(reinterpret_cast<const std::byte*>(a.data()), DType::kF64,
                               reinterpret_cast<const std::byte*>(b.data()), DType::kF64, a.size(),
                               WorkType::kF64);
}

TEST(TensorStats, KindsOfNumbers) {
  const TensorStats f = StatsOfVector<float>({3, -4}, DType::kF32, {2});
  EXPECT_EQ(f.max, Number(3.0));
  EXPECT_EQ(f.min, Number(-4.0));
  EXPECT_EQ(f.mean, Number(-0.5));
  EXPECT_EQ(f.norm, Number(5.0));
  EXPECT_EQ(f.finite_max, Number());
  const TensorStats i = StatsOfVector<int64_t>({3, -4}, DType::kI64, {2});
  EXPECT_EQ(i.max, Number(int64_t{3}));
  EXPECT_EQ(i.min, Number(int64_t{-4}));
  EXPECT_EQ(i.mean, Number(-0.5));
  EXPECT_EQ(i.norm, Number(5.0));
  const TensorStats u = StatsOfVector<uint64_t>({UINT64_MAX, 1}, DType::kU64, {2});
  EXPECT_EQ(u.max, Number(UINT64_MAX));
  EXPECT_EQ(u.min, Number(uint64_t{1}));
  const TensorStats b = StatsOfVector<uint8_t>({1, 0, 7}, DType::kBool, {3});
  EXPECT_EQ(b.max, Number(true));
  EXPECT_EQ(b.min, Number(false));
  EXPECT_EQ(b.mean, Number());
  EXPECT_EQ(b.norm, Number());
}

TEST(TensorStats, EmptyIsFourNulls) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const TensorStats s = StatsOfVector<double>({}, static_cast<DType>(i), {0, 3});
    EXPECT_EQ(s.max, Number());
    EXPECT_EQ(s.min, Number());
    EXPECT_EQ(s.mean, Number());
    EXPECT_EQ(s.norm, Number());
  }
}

TEST(TensorStats, RankZeroNormIsTheMagnitudeAlsoOutsideTheRangeOfSquares) {
  for (const double x : {-2.5, 1e300, -5e-324}) {
    EXPECT_EQ(StatsOfVector<double>({x}, DType::kF64, {}).norm, Number(std::fabs(x)));
  }
  EXPECT_EQ(StatsOfVector<int32_t>({-7}, DType::kI32, {}).norm, Number(7.0));
}

TEST(TensorStats, DensePermutedViewIsReadFlat) {
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  const Shape shape{3, 2};
  const std::vector<int64_t> strides{1, 3};
  const TensorView view{reinterpret_cast<const std::byte*>(values.data()), DType::kF32, shape,
                        strides};
  EXPECT_EQ(StatsOf(view).mean, Number(3.5));
  EXPECT_EQ(StatsOf(view).max, Number(6.0));
}

TEST(TensorStats, MergedPartsGiveTheWhole) {
  const std::vector<double> values{1e300, -2, kInf, 1e-300, 5, -1e300, 8};
  const auto part = [&](size_t from, size_t n) {
    return kernels::FloatStatsOf(reinterpret_cast<const std::byte*>(values.data() + from), n, 1,
                                 DType::kF64);
  };
  kernels::FloatStats total;
  total.Merge(part(0, 3));
  total.Merge(part(3, 0));
  total.Merge(part(3, 1));
  total.Merge(part(4, 3));
  const TensorStats s = StatsOfFloats(total, false);
  EXPECT_EQ(s.max, Number(kInf));
  EXPECT_EQ(s.min, Number(-1e300));
  EXPECT_EQ(s.finite_max, Number(1e300));
  EXPECT_EQ(s.inf, 1u);
  EXPECT_EQ(s.norm, Number(kInf));
  EXPECT_NEAR(total.scale * std::sqrt(total.sumsq) / 1e300, std::sqrt(2.0), 1e-15);
}

TEST(TensorStats, MergedSumsThatOverflowAreScaled) {
  const std::vector<double> values(4, 1.5e308);
  const auto part = [&](size_t n) {
    return kernels::FloatStatsOf(reinterpret_cast<const std::byte*>(values.data()), n, 1,
                                 DType::kF64);
  };
  kernels::FloatStats ones = part(1);
  ones.Merge(part(1));
  ones.Merge(part(2));
  const TensorStats s = StatsOfFloats(ones, false);
  EXPECT_DOUBLE_EQ(std::get<double>(s.mean), 1.5e308);
  EXPECT_EQ(s.norm, Number(kInf));  // 3e308 is beyond double itself
}

TEST(PairMetrics, WorkTypes) {
  EXPECT_EQ(WorkTypeOf(DType::kF16, DType::kF16), WorkType::kF32);
  EXPECT_EQ(WorkTypeOf(DType::kBF16, DType::kF8E5M2), WorkType::kF32);
  EXPECT_EQ(WorkTypeOf(DType::kF32, DType::kF64), WorkType::kF64);
  EXPECT_EQ(WorkTypeOf(DType::kF32, DType::kI8), WorkType::kF64);
  EXPECT_EQ(WorkTypeOf(DType::kBool, DType::kBool), WorkType::kF64);
  EXPECT_EQ(WorkTypeOf(DType::kC64, DType::kC64), WorkType::kF64);
}

TEST(PairMetrics, CosineCases) {
  EXPECT_EQ(MetricsOf(ErrorsOf({2}, {2})).cosine_case, CosineCase::kOneElement);
  EXPECT_EQ(MetricsOf(ErrorsOf({0, 0}, {0, -0.0})).cosine_case, CosineCase::kBothZero);
  EXPECT_EQ(MetricsOf(ErrorsOf({0, 0}, {0, 1})).cosine_case, CosineCase::kTargetZero);
  EXPECT_EQ(MetricsOf(ErrorsOf({0, 1}, {0, 0})).cosine_case, CosineCase::kGoldenZero);
  EXPECT_EQ(MetricsOf(ErrorsOf({kNan, 1}, {0, 0})).cosine_case, CosineCase::kNan);
  EXPECT_EQ(MetricsOf(ErrorsOf({}, {})).cosine_case, CosineCase::kNan);
  const PairMetrics m = MetricsOf(ErrorsOf({3, 4}, {4, 3}));
  EXPECT_EQ(m.cosine_case, CosineCase::kValue);
  EXPECT_DOUBLE_EQ(m.cosine, 24.0 / 25.0);
  EXPECT_DOUBLE_EQ(m.euclidean, std::sqrt(2.0));
}

TEST(PairMetrics, MismatchedClassesNeverLookGood) {
  const PairMetrics m = MetricsOf(ErrorsOf({kInf, 1, 2}, {-kInf, 1, 2}));
  EXPECT_TRUE(std::isnan(m.cosine) && std::isnan(m.euclidean) && std::isnan(m.max_abs) &&
              std::isnan(m.max_rel));
  EXPECT_DOUBLE_EQ(m.below_thousandth, 2.0 / 3.0);
}

TEST(PairMetrics, RoundingOfCells) {
  EXPECT_EQ(Round12(4.9e-13), 0.0);
  EXPECT_EQ(Round12(0.82333333333333333), 0.823333333333);
  EXPECT_EQ(Round12(1e300), 1e300);
  EXPECT_TRUE(std::isnan(Round12(kNan)));
  EXPECT_EQ(Round12(-kInf), -kInf);
  EXPECT_EQ(RoundCosine(0.999900000001), 0.9999);
  EXPECT_EQ(RoundCosine(0.9999), 0.9999);
  EXPECT_EQ(RoundCosine(0.99989999999), 0.99989999999);
  EXPECT_EQ(RoundCosine(0.99999961), 1.0);
  EXPECT_EQ(RoundCosine(-0.99999961), -0.99999961);
}

TEST(Checksums, XorOfSmallStridedElementsFollowsWordBoundaries) {
  // Every second of 20 uint16: packed 0, 2, …, 38 in three words, the last half empty.
  std::vector<uint16_t> values(40);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(i);
  const Shape shape{10};
  const std::vector<int64_t> strides{2};
  const TensorView view{reinterpret_cast<const std::byte*>(values.data()), DType::kU16, shape,
                        strides};
  // words: 0006'0004'0002'0000, 000E'000C'000A'0008, 0000'0000'0012'0010
  EXPECT_EQ(Xor64Of(view), 0x0008'0008'001A'0018u);
}

TEST(Checksums, LongRunsBetweenOddPiecesKeepTheirPlaceInTheWords) {
  // Rows of 9001 bytes out of 9004: each is longer than the staging buffer and starts in the middle
  // of a word.
  const int64_t rows = 5, width = 9001, pitch = 9004;
  std::vector<uint8_t> bytes(static_cast<size_t>(rows * pitch));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 131 + (i >> 8));
  const Shape shape{rows, width};
  const std::vector<int64_t> strides{pitch, 1};
  const TensorView view{reinterpret_cast<const std::byte*>(bytes.data()), DType::kU8, shape,
                        strides};
  std::vector<std::byte> packed(static_cast<size_t>(rows * width));
  CopyContiguous(view, packed.data());
  uint64_t expected = 0;
  for (size_t i = 0; i < packed.size(); ++i) {
    expected ^= static_cast<uint64_t>(packed[i]) << (8 * (i % 8));
  }
  EXPECT_EQ(Xor64Of(view), expected);
  const Shape flat{rows * width};
  const TensorView copy{packed.data(), DType::kU8, flat, {}};
  EXPECT_EQ(Crc32Of(view), Crc32Of(copy));
  EXPECT_EQ(Hash64Of(view), Hash64Of(copy));
}

}  // namespace
}  // namespace msprobe::metrics
