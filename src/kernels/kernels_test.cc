// Every compiled vector target against plain loops in long double (x86: 64 bits of mantissa),
// 128-bit and modular integers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/checksum.h"
#include "kernels/pair_errors.h"
#include "kernels/stats.h"
#include "kernels/target_test.h"
#include "tensor/convert.h"

namespace msprobe::kernels {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr DType kFloatTypes[] = {DType::kF16, DType::kBF16, DType::kF32, DType::kF64};
constexpr size_t kLengths[] = {0,    1,    2,    3,    7,    8,    9,    15,  16,  17,
                               31,   32,   33,   63,   64,   65,   95,   97,  127, 129,
                               1000, 1023, 1024, 1025, 1056, 2048, 4097, 9999};

// Elements of a dtype in memory, at an odd address, beside their values.
class Elements {
 public:
  Elements(DType dtype, const std::vector<double>& values)
      : dtype_(dtype), bytes_(values.size() * ItemSize(dtype) + 1) {
    for (const double v : values) Append(v);
  }
  const std::byte* data() const { return bytes_.data() + 1; }
  size_t size() const { return values_.size(); }
  DType dtype() const { return dtype_; }
  const std::vector<double>& values() const { return values_; }

 private:
  template <class T>
  void Put(T x) {
    std::memcpy(bytes_.data() + 1 + values_.size() * sizeof(T), &x, sizeof(T));
  }
  void Append(double v) {
    switch (dtype_) {
      case DType::kF16: {
        const uint16_t h = FloatToHalf(static_cast<float>(v));
        Put(h);
        return values_.push_back(static_cast<double>(HalfToFloat(h)));
      }
      case DType::kBF16: {
        const uint16_t h = FloatToBFloat16(static_cast<float>(v));
        Put(h);
        return values_.push_back(static_cast<double>(BFloat16ToFloat(h)));
      }
      case DType::kF32:
        Put(static_cast<float>(v));
        return values_.push_back(static_cast<double>(static_cast<float>(v)));
      default:
        Put(v);
        return values_.push_back(v);
    }
  }
  DType dtype_;
  std::vector<std::byte> bytes_;
  std::vector<double> values_;
};

std::vector<double> Normal(size_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> distribution(0.5, 2);
  std::vector<double> values(n);
  for (double& v : values) v = distribution(generator);
  return values;
}

std::vector<double> Near(const std::vector<double>& values, uint32_t seed) {
  std::vector<double> changes = Normal(values.size(), seed);
  for (size_t i = 0; i < values.size(); ++i) {
    changes[i] = i % 11 == 3 ? 0 : i % 5 == 0 ? values[i] : values[i] * (1 + 2e-3 * changes[i]);
  }
  return changes;
}

class EveryTarget : public OnTarget {};

void CheckStats(const Elements& e) {
  FloatStats s = FloatStatsOf(e.data(), e.size(), 1, e.dtype());
  long double sum = 0, sumsq = 0, size = 0;
  uint64_t nan = 0, pos = 0, neg = 0;
  double low = kInf, high = -kInf;
  for (const double v : e.values()) {
    nan += std::isnan(v);
    pos += v == kInf;
    neg += v == -kInf;
    if (!std::isfinite(v)) continue;
    low = std::min(low, v);
    high = std::max(high, v);
    sum += static_cast<long double>(v);
    size += std::fabs(static_cast<long double>(v));
    sumsq += static_cast<long double>(v) * static_cast<long double>(v);
  }
  EXPECT_EQ(s.count, e.size());
  EXPECT_EQ(s.nan, nan);
  EXPECT_EQ(s.pos_inf, pos);
  EXPECT_EQ(s.neg_inf, neg);
  EXPECT_EQ(s.finite_min, low);
  EXPECT_EQ(s.finite_max, high);
  EXPECT_EQ(s.min, neg > 0 ? -kInf : low);
  EXPECT_EQ(s.max, pos > 0 ? kInf : neg > 0 ? std::max(high, -kInf) : high);
  EXPECT_NEAR(s.sum, static_cast<double>(sum), 1.5e-14 * static_cast<double>(size));
  EXPECT_NEAR(s.sumsq, static_cast<double>(sumsq), 1.5e-14 * static_cast<double>(sumsq));
}

TEST_P(EveryTarget, FloatStatsAgreeWithPlainLoops) {
  for (const DType dtype : kFloatTypes) {
    for (const size_t n : kLengths) {
      SCOPED_TRACE(std::string(ShortName(dtype)) + " " + std::to_string(n));
      CheckStats(Elements(dtype, Normal(n, 1)));
    }
  }
}

TEST_P(EveryTarget, FloatStatsFindEveryNonFiniteElement) {
  for (const DType dtype : kFloatTypes) {
    for (size_t position = 0; position < 2500; position += 83) {
      std::vector<double> values = Normal(2500, 2);
      values[position] = kNan;
      CheckStats(Elements(dtype, values));
      values[position] = -kInf;
      values[(position + 1024) % 2500] = kInf;
      CheckStats(Elements(dtype, values));
    }
    for (const double share : {0.1, 0.5, 0.95}) {  // masks of attention are half infinite
      std::mt19937 generator(3);
      std::uniform_real_distribution<double> chance;
      std::vector<double> values = Normal(3000, 4);
      for (double& v : values) {
        if (chance(generator) < share) v = std::array{kNan, kInf, -kInf, -kInf}[generator() % 4];
      }
      CheckStats(Elements(dtype, values));
    }
    CheckStats(Elements(dtype, std::vector<double>(50, kNan)));
    CheckStats(Elements(dtype, std::vector<double>(50, -kInf)));
    CheckStats(Elements(dtype, {kInf, kNan, -kInf}));
  }
}

TEST_P(EveryTarget, EveryHalfCodeIsReadExactly) {
  std::vector<uint16_t> halves(0x10000);
  std::vector<float> floats(0x10000);
  for (size_t i = 0; i < halves.size(); ++i) {
    halves[i] = static_cast<uint16_t>(i);
    floats[i] = HalfToFloat(halves[i]);
  }
  const auto* h = reinterpret_cast<const std::byte*>(halves.data());
  const auto* f = reinterpret_cast<const std::byte*>(floats.data());
  for (size_t i = 0; i < halves.size(); i += 64) {  // few enough that a wrong one shows in the sums
    const FloatStats x = FloatStatsOf(h + 2 * i, 64, 1, DType::kF16);
    const FloatStats y = FloatStatsOf(f + 4 * i, 64, 1, DType::kF32);
    ASSERT_EQ(x.nan, y.nan) << i;
    ASSERT_EQ(x.pos_inf + x.neg_inf, y.pos_inf + y.neg_inf);
    ASSERT_EQ(x.finite_min, y.finite_min);
    ASSERT_EQ(x.finite_max, y.finite_max);
    ASSERT_EQ(x.sum, y.sum);
    ASSERT_EQ(x.sumsq, y.sumsq);
  }
}

TEST_P(EveryTarget, Float64SumsKeepWhatAPlainSumLoses) {
  std::vector<double> values;
  for (int i = 0; i < 3000; ++i) values.insert(values.end(), {1.0, 1e17, 1.0, -1e17});
  EXPECT_EQ(
      FloatStatsOf(reinterpret_cast<const std::byte*>(values.data()), values.size(), 1, DType::kF64)
          .sum,
      6000);
}

TEST_P(EveryTarget, Float64OutsideTheRangeOfSquaresIsScaled) {
  for (const double x : {1e300, -1e200, 1e-200, 5e-324}) {
    const std::vector<double> values(1500, x);
    const FloatStats s = FloatStatsOf(reinterpret_cast<const std::byte*>(values.data()),
                                      values.size(), 1, DType::kF64);
    EXPECT_NEAR(s.scale * std::sqrt(s.sumsq) / std::fabs(x), std::sqrt(1500.0),
                x == 5e-324 ? 0.5 : 1e-12);
    EXPECT_EQ(s.sum_scale, 1);
  }
  const std::vector<double> values(1500, 1.7e308);
  const FloatStats s = FloatStatsOf(reinterpret_cast<const std::byte*>(values.data()),
                                    values.size(), 1, DType::kF64);
  EXPECT_DOUBLE_EQ(s.sum / 1500 * s.sum_scale, 1.7e308);
}

template <class T>
void CheckIntegers(DType dtype) {
  std::mt19937_64 generator(3);
  for (const size_t n : kLengths) {
    std::vector<T> values(n);
    for (T& v : values) v = static_cast<T>(generator());
    if (n > 3) {
      values[n / 2] = std::numeric_limits<T>::max();
      values[n / 3] = std::numeric_limits<T>::min();
    }
    __extension__ __int128 sum = 0;
    long double sumsq = 0;
    for (const T v : values) {
      sum += v;
      sumsq += static_cast<long double>(v) * static_cast<long double>(v);
    }
    const IntStats s = IntStatsOf(reinterpret_cast<const std::byte*>(values.data()), n, 1, dtype);
    EXPECT_EQ(s.count, n);
    EXPECT_TRUE(s.sum == sum);
    EXPECT_NEAR(s.sumsq, static_cast<double>(sumsq), 1e-13 * static_cast<double>(sumsq));
    if (n == 0) continue;
    EXPECT_EQ(static_cast<T>(s.min), *std::min_element(values.begin(), values.end()));
    EXPECT_EQ(static_cast<T>(s.max), *std::max_element(values.begin(), values.end()));
  }
}

TEST_P(EveryTarget, IntegerStatsAreExact) {
  CheckIntegers<uint8_t>(DType::kU8);
  CheckIntegers<int8_t>(DType::kI8);
  CheckIntegers<uint16_t>(DType::kU16);
  CheckIntegers<int16_t>(DType::kI16);
  CheckIntegers<uint32_t>(DType::kU32);
  CheckIntegers<int32_t>(DType::kI32);
  CheckIntegers<uint64_t>(DType::kU64);
  CheckIntegers<int64_t>(DType::kI64);
}

// compare.md 7.3 NEW for finite pairs, W = work type.
template <class W>
PairErrors ExpectedErrors(const std::vector<double>& a, const std::vector<double>& b) {
  PairErrors e;
  long double dot = 0, aa = 0, bb = 0, dd = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    auto x = static_cast<W>(a[i]), y = static_cast<W>(b[i]);
    if (y == 0) {
      x += std::numeric_limits<W>::epsilon();
      y += std::numeric_limits<W>::epsilon();
    }
    const W rel = std::fabs((x - y) / y);
    e.max_rel = std::max(e.max_rel, static_cast<double>(rel));
    e.below_thousandth += rel < static_cast<W>(0.001);
    e.below_five_thousandths += rel < static_cast<W>(0.005);
    const double diff = a[i] - b[i];
    if (std::fabs(diff) > e.max_abs) {
      e.max_abs = std::fabs(diff);
      e.max_abs_index = i;
    }
    if (a[i] != b[i] && e.unequal++ == 0) e.first_unequal = i;
    const long double la = a[i], lb = b[i];
    dot += la * lb;
    aa += la * la;
    bb += lb * lb;
    dd += static_cast<long double>(diff) * diff;
  }
  e.dot = static_cast<double>(dot);
  e.a_sumsq = static_cast<double>(aa);
  e.b_sumsq = static_cast<double>(bb);
  e.diff_sumsq = static_cast<double>(dd);
  return e;
}

void CheckPair(const Elements& a, const Elements& b) {
  const bool narrow = a.dtype() != DType::kF64 && b.dtype() != DType::kF64;
  const PairErrors expected = narrow ? ExpectedErrors<float>(a.values(), b.values())
                                     : ExpectedErrors<double>(a.values(), b.values());
  const PairErrors e = PairErrorsOf(a.data(), a.dtype(), b.data(), b.dtype(), a.size(),
                                    narrow ? WorkType::kF32 : WorkType::kF64);
  EXPECT_EQ(e.count, a.size());
  EXPECT_EQ(e.class_mismatch, 0u);
  EXPECT_EQ(e.max_abs, expected.max_abs);
  EXPECT_EQ(e.max_abs_index, expected.max_abs_index);
  EXPECT_EQ(e.max_rel, expected.max_rel);
  EXPECT_EQ(e.below_thousandth, expected.below_thousandth);
  EXPECT_EQ(e.below_five_thousandths, expected.below_five_thousandths);
  EXPECT_EQ(e.unequal, expected.unequal);
  EXPECT_EQ(e.first_unequal, expected.first_unequal);
  EXPECT_NEAR(e.a_sumsq, expected.a_sumsq, 3e-14 * expected.a_sumsq);
  EXPECT_NEAR(e.b_sumsq, expected.b_sumsq, 3e-14 * expected.b_sumsq);
  EXPECT_NEAR(e.diff_sumsq, expected.diff_sumsq, 3e-14 * expected.diff_sumsq);
  EXPECT_NEAR(e.dot, expected.dot, 3e-14 * std::sqrt(expected.a_sumsq * expected.b_sumsq));
}

TEST_P(EveryTarget, PairErrorsAgreeWithPlainLoops) {
  for (const DType a : kFloatTypes) {
    for (const DType b : kFloatTypes) {
      for (const size_t n : kLengths) {
        SCOPED_TRACE(std::string(ShortName(a)) + " " + std::string(ShortName(b)) + " " +
                     std::to_string(n));
        const std::vector<double> values = Normal(n, 4);
        CheckPair(Elements(a, values), Elements(b, Near(values, 5)));
      }
    }
  }
}

TEST_P(EveryTarget, WorkTypeFloat64OnFloat32PairsIsUsed) {
  const Elements a(DType::kF32, {1, 0.01}), b(DType::kF32, {1, 0});
  const PairErrors e =
      PairErrorsOf(a.data(), DType::kF32, b.data(), DType::kF32, 2, WorkType::kF64);
  EXPECT_EQ(e.max_rel, ExpectedErrors<double>(a.values(), b.values()).max_rel);
  EXPECT_NE(e.max_rel, ExpectedErrors<float>(a.values(), b.values()).max_rel);
}

TEST_P(EveryTarget, NonFinitePairsAreSortedByClass) {
  for (const DType dtype : kFloatTypes) {
    for (size_t position = 0; position < 2200; position += 331) {
      std::vector<double> x(2200, 1), y(2200, 1.25);
      x[position] = y[position] = kNan;
      x[(position + 1) % 2200] = y[(position + 1) % 2200] = -kInf;
      x[(position + 2) % 2200] = kInf;
      y[(position + 2) % 2200] = -kInf;
      x[(position + 1100) % 2200] = kNan;
      const Elements a(dtype, x), b(dtype, y);
      const PairErrors e = PairErrorsOf(a.data(), dtype, b.data(), dtype, 2200,
                                        dtype == DType::kF64 ? WorkType::kF64 : WorkType::kF32);
      EXPECT_EQ(e.count, 2200u);
      EXPECT_EQ(e.both_nan, 1u);
      EXPECT_EQ(e.both_inf, 1u);
      EXPECT_EQ(e.class_mismatch, 2u);
      EXPECT_EQ(e.rel_nan, 2u);
      EXPECT_EQ(e.unequal, 2198u);
      EXPECT_EQ(e.first_unequal, position == 0 ? 2u : 0u);
      EXPECT_EQ(e.below_thousandth, 2u);
      EXPECT_EQ(e.a_sumsq, 2196);
      EXPECT_EQ(e.dot, 2196 * 1.25);
      EXPECT_EQ(e.diff_sumsq, 2196 * 0.0625);
      EXPECT_EQ(e.max_abs, 0.25);
    }
  }
}

TEST_P(EveryTarget, LargestErrorIsFoundWhereverItIs) {
  for (const DType dtype : kFloatTypes) {
    for (size_t position = 0; position < 3100; position += 97) {
      std::vector<double> x(3100, 1), y(3100, 1);
      y[3099] = 1.5;
      y[position] = 3;
      const Elements a(dtype, x), b(dtype, y);
      const PairErrors e = PairErrorsOf(a.data(), dtype, b.data(), dtype, 3100, WorkType::kF32);
      EXPECT_EQ(e.max_abs, 2);
      EXPECT_EQ(e.max_abs_index, position);
      EXPECT_EQ(e.first_unequal, position);
    }
  }
}

TEST_P(EveryTarget, PartsMergeToTheWhole) {
  const std::vector<double> values = Normal(5000, 6);
  const Elements a(DType::kF32, values), b(DType::kF32, Near(values, 7));
  const auto part = [&](size_t from, size_t n) {
    return PairErrorsOf(a.data() + 4 * from, DType::kF32, b.data() + 4 * from, DType::kF32, n,
                        WorkType::kF32);
  };
  const PairErrors whole = part(0, 5000);
  PairErrors merged = part(0, 5);
  merged.Merge(part(5, 0));
  merged.Merge(part(5, 1300));
  merged.Merge(part(1305, 3695));
  EXPECT_EQ(merged.count, whole.count);
  EXPECT_EQ(merged.max_abs, whole.max_abs);
  EXPECT_EQ(merged.max_abs_index, whole.max_abs_index);
  EXPECT_EQ(merged.max_rel, whole.max_rel);
  EXPECT_EQ(merged.unequal, whole.unequal);
  EXPECT_EQ(merged.first_unequal, whole.first_unequal);
  EXPECT_EQ(merged.below_thousandth, whole.below_thousandth);
  EXPECT_NEAR(merged.dot, whole.dot, 1e-13 * whole.a_sumsq);
  EXPECT_NEAR(merged.diff_sumsq, whole.diff_sumsq, 1e-13 * whole.diff_sumsq);
}

// The definition in checksum.h, one element at a time.
uint64_t PlainHash(const std::vector<std::byte>& data, size_t item, uint64_t first) {
  const auto mix = [](uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  };
  uint64_t total = 0;
  for (size_t i = 0; i < data.size() / item; ++i) {
    const uint64_t index = first + i + 1;
    uint64_t low = 0, high = 0;
    std::memcpy(&low, data.data() + i * item, std::min<size_t>(item, 8));
    total += mix(low + index * 0x9E3779B97F4A7C15);
    if (item < 16) continue;
    std::memcpy(&high, data.data() + i * item + 8, 8);
    total += mix(high + (index + (uint64_t{1} << 63)) * 0x9E3779B97F4A7C15);
  }
  return total;
}

TEST_P(EveryTarget, Hash64IsItsDefinitionAndPartsAddUp) {
  std::mt19937 generator(8);
  for (const size_t item : {1u, 2u, 4u, 8u, 16u}) {
    for (const size_t n : kLengths) {
      std::vector<std::byte> data(n * item);
      for (std::byte& b : data) b = static_cast<std::byte>(generator());
      for (const uint64_t first : {uint64_t{0}, uint64_t{5}, uint64_t{1} << 40}) {
        EXPECT_EQ(Hash64(data.data(), n, item, first), PlainHash(data, item, first))
            << item << " " << n;
      }
      const size_t k = n / 3;
      EXPECT_EQ(Hash64(data.data(), k, item, 0) + Hash64(data.data() + k * item, n - k, item, k),
                Hash64(data.data(), n, item, 0));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, EveryTarget,
                         ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const ::testing::TestParamInfo<int64_t>& target) {
                           return std::string(hwy::TargetName(target.param));
                         });

// The values of dump.md 13 and compare.md 25.3; parts chain.
TEST(Checksums, CrcAndXorOfTheSpecification) {
  const std::vector<float> x{1, 2, 3, 4, 5};
  const auto* p = reinterpret_cast<const std::byte*>(x.data());
  EXPECT_EQ(Crc32(0, p, 16), 0x8ba71454u);
  EXPECT_EQ(Crc32(0, p, 0), 0u);
  EXPECT_EQ(Crc32(Crc32(0, p, 3), p + 3, 13), 0x8ba71454u);
  EXPECT_EQ(Crc32(0x8ba71454u, p, 0), 0x8ba71454u);
  EXPECT_EQ(Xor64(p, 16), 36028799162253312u);
  EXPECT_EQ(Xor64(p, 20), 36028798082220032u);
  EXPECT_EQ(Xor64(p, 8) ^ Xor64(p + 8, 12), 36028798082220032u);
  EXPECT_EQ(Xor64(p, 0), 0u);
}

TEST(PairErrors, OneElementSquaresOutsideTheRangeOfDoubleMerge) {
  const auto of = [](double a, double b) {
    return PairErrorsOf(reinterpret_cast<const std::byte*>(&a), DType::kF64,
                        reinterpret_cast<const std::byte*>(&b), DType::kF64, 1, WorkType::kF64);
  };
  PairErrors e = of(3e-200, 4e200);
  e.Merge(of(0, 0));
  e.Merge(of(4e-200, 3e200));
  EXPECT_NEAR(e.dot / (std::sqrt(e.a_sumsq) * std::sqrt(e.b_sumsq)), 24.0 / 25.0, 1e-14);
  EXPECT_NEAR(e.a_scale * std::sqrt(e.a_sumsq) / 5e-200, 1, 1e-14);
  EXPECT_NEAR(e.b_scale * std::sqrt(e.b_sumsq) / 5e200, 1, 1e-14);
  EXPECT_NEAR(e.scale * std::sqrt(e.diff_sumsq) / 5e200, 1, 1e-14);
  // Two sums near the limit that only overflow together.
  PairErrors big = of(1.2e154, 0);
  big.Merge(of(1.2e154, 0));
  big.Merge(of(1.2e154, 1));
  EXPECT_NEAR(big.a_scale * std::sqrt(big.a_sumsq) / 1.2e154, std::sqrt(3.0), 1e-14);
}

TEST(PairErrors, DifferenceThatOverflowsIsInfinite) {
  const double a[] = {1.7e308, 1}, b[] = {-1.7e308, 1};
  const PairErrors e =
      PairErrorsOf(reinterpret_cast<const std::byte*>(a), DType::kF64,
                   reinterpret_cast<const std::byte*>(b), DType::kF64, 2, WorkType::kF64);
  EXPECT_EQ(e.max_abs, kInf);
  EXPECT_EQ(e.class_mismatch, 0u);
  EXPECT_TRUE(std::isfinite(e.diff_sumsq) && std::isfinite(e.dot));
  EXPECT_NEAR(e.dot / (std::sqrt(e.a_sumsq) * std::sqrt(e.b_sumsq)), -1, 1e-15);
}

TEST(Stats, StridesReachEveryElement) {
  std::vector<float> x(6000);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  const auto* p = reinterpret_cast<const std::byte*>(x.data());
  EXPECT_EQ(FloatStatsOf(p, 2000, 3, DType::kF32).sum, 3.0 * 1999 * 2000 / 2);
  EXPECT_EQ(FloatStatsOf(p + 4 * 5999, 6000, -1, DType::kF32).sum, 5999.0 * 6000 / 2);
  EXPECT_EQ(FloatStatsOf(p + 4 * 7, 3000, 0, DType::kF32).sum, 21000);
  std::vector<int32_t> y(6000);
  for (size_t i = 0; i < y.size(); ++i) y[i] = static_cast<int32_t>(i);
  const auto* q = reinterpret_cast<const std::byte*>(y.data());
  EXPECT_TRUE(IntStatsOf(q, 2000, 3, DType::kI32).sum == 3 * 1999 * 1000);
  EXPECT_TRUE(IntStatsOf(q + 4 * 5999, 6000, -1, DType::kI32).sum == 5999 * 3000);
}

TEST(Stats, MergeKeepsUnsignedOrder) {
  const uint64_t a[] = {1, 5}, b[] = {UINT64_MAX, 9};
  IntStats s = IntStatsOf(reinterpret_cast<const std::byte*>(a), 2, 1, DType::kU64);
  s.Merge(IntStatsOf(reinterpret_cast<const std::byte*>(b), 2, 1, DType::kU64));
  EXPECT_EQ(static_cast<uint64_t>(s.min), 1u);
  EXPECT_EQ(static_cast<uint64_t>(s.max), UINT64_MAX);
  s.Merge(IntStats());
  EXPECT_EQ(s.count, 4u);
}

}  // namespace
}  // namespace msprobe::kernels
