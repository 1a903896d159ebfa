// Every compiled vector target against the formulas of the header, one element at a time.
#include "kernels/sketch.h"

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/load.h"
#include "kernels/stats.h"
#include "kernels/target_test.h"

namespace msprobe::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
  x = (x ^ x >> 27) * 0x94D049BB133111EB;
  return x ^ x >> 31;
}

struct Plain {
  std::vector<double> slots;
  SketchLeftOut left_out;
};

Plain PlainSketch(const std::vector<double>& values, uint64_t first, uint32_t k, uint64_t seed) {
  Plain out;
  out.slots.resize(k);
  for (size_t n = 0; n < values.size(); ++n) {
    const double x = values[n];
    const uint64_t i = first + n;
    if (std::isnan(x)) {
      ++out.left_out.nan;
    } else if (std::isinf(x)) {
      ++out.left_out.inf;
    } else if (std::fabs(x) >= 1e30) {
      ++out.left_out.huge;
    } else {
      const uint64_t slot = (i + Mix(i / k + seed + 77) % k) % k;
      const bool minus = Mix(i / 64 ^ seed * 0x5851F42D4C957F2D) >> i % 64 & 1;
      out.slots[slot] += minus ? -x : x;
    }
  }
  return out;
}

// Integers of few bits, so that every order of additions gives the same sums.
template <class T>
std::vector<T> SmallIntegers(size_t n) {
  std::mt19937 generator(7);
  std::vector<T> out(n);
  for (T& x : out) x = static_cast<T>(static_cast<int>(generator() % 201) - 100);
  return out;
}

class EverySketchTarget : public OnTarget {};

void CheckBytes(const std::vector<std::byte>& bytes, DType dtype, uint64_t first, uint32_t k,
                uint64_t seed) {
  const size_t n = bytes.size() / ItemSize(dtype);
  std::vector<std::byte> odd(bytes.size() + 1);  // an odd address
  if (!bytes.empty()) std::memcpy(odd.data() + 1, bytes.data(), bytes.size());
  std::vector<double> values(n);
  LoadDoubles(odd.data() + 1, 1, n, dtype, values.data());
  const Plain expected = PlainSketch(values, first, k, seed);
  std::vector<double> sums(2 * size_t{k});
  SketchLeftOut left_out;
  AddToSketch(odd.data() + 1, n, dtype, first, k, seed, sums.data(), &left_out);
  FoldSketch(k, sums.data());
  sums.resize(k);
  EXPECT_EQ(sums, expected.slots);
  EXPECT_EQ(left_out.nan, expected.left_out.nan);
  EXPECT_EQ(left_out.inf, expected.left_out.inf);
  EXPECT_EQ(left_out.huge, expected.left_out.huge);
}

template <class T>
void Check(const std::vector<T>& elements, DType dtype, uint64_t first, uint32_t k, uint64_t seed) {
  const auto* p = reinterpret_cast<const std::byte*>(elements.data());
  CheckBytes({p, p + elements.size() * sizeof(T)}, dtype, first, k, seed);
}

TEST_P(EverySketchTarget, EqualsTheFormulas) {
  for (const uint32_t k : {64u, 192u, 256u, 4096u}) {
    for (const uint64_t first : {0ull, 1ull, 63ull, 64ull, 250ull, 1ull << 40, ~0ull - 20000}) {
      for (const size_t n : {0u, 1u, 17u, 64u, 65u, 130u, 1000u, 9001u}) {
        const uint64_t seed = first + n;
        Check(SmallIntegers<float>(n), DType::kF32, first, k, seed);
        Check(SmallIntegers<double>(n), DType::kF64, first, k, seed);
        Check(SmallIntegers<int32_t>(n), DType::kI32, first, k, seed);
        Check(SmallIntegers<int64_t>(n), DType::kI64, first, k, seed);
        Check(SmallIntegers<int16_t>(n), DType::kI16, first, k, seed);
        Check(SmallIntegers<uint8_t>(n), DType::kU8, first, k, seed);
        Check(SmallIntegers<uint8_t>(n), DType::kBool, first, k, seed);
      }
    }
  }
}

// Every pattern of the 8- and 16-bit floats, non-finite ones among them.
TEST_P(EverySketchTarget, EveryPatternOfSmallFloats) {
  std::vector<uint16_t> patterns(65536);
  for (size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<uint16_t>(i);
  Check(patterns, DType::kF16, 0, 4096, 3);
  // bfloat16 spans more bits than double sums exactly: one element per slot is exact.
  for (size_t at = 0; at < patterns.size(); at += 4096) {
    const std::vector<uint16_t> part(patterns.begin() + static_cast<ptrdiff_t>(at),
                                     patterns.begin() + static_cast<ptrdiff_t>(at + 4096));
    Check(part, DType::kBF16, at, 4096, 3);
  }
  std::vector<uint8_t> bytes(256);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i);
  for (const DType dtype : {DType::kF8E4M3FN, DType::kF8E5M2, DType::kF8E4M3FNUZ,
                            DType::kF8E5M2FNUZ, DType::kF8E8M0FNU}) {
    Check(bytes, dtype, 0, 256, 5);
  }
}

TEST_P(EverySketchTarget, NonFiniteAndHugeElementsCountAsZero) {
  for (const size_t at : {0u, 5u, 63u, 64u, 200u, 1023u, 1100u}) {
    std::vector<float> x = SmallIntegers<float>(1101);
    x[at] = kNan;
    x[(at + 7) % x.size()] = kInf;
    x[(at + 9) % x.size()] = -kInf;
    x[(at + 11) % x.size()] = 3e38f;
    x[(at + 13) % x.size()] = -1e30f;
    x[(at + 64) % x.size()] = std::nextafter(1e30f, 0.0f);  // the largest that is not
    Check(x, DType::kF32, 3, 64, 1);
    std::vector<double> y(x.begin(), x.end());
    y[(at + 13) % y.size()] = -1e30;
    y[(at + 64) % y.size()] = std::nextafter(1e30, 0.0);
    Check(y, DType::kF64, 3, 64, 1);
  }
}

// Not only near: the bits of every sum are those of the additions in ascending order.
TEST_P(EverySketchTarget, AnyCutGivesTheSameBits) {
  std::mt19937 generator(3);
  std::normal_distribution<float> normal;
  std::vector<float> x(10000);
  for (float& v : x) v = normal(generator);
  const auto* p = reinterpret_cast<const std::byte*>(x.data());
  constexpr uint32_t kSlots = 256;
  std::vector<double> whole(2 * kSlots), parts(2 * kSlots), expected(2 * kSlots);
  SketchLeftOut left_out;
  AddToSketch(p, x.size(), DType::kF32, 0, kSlots, 1, whole.data(), &left_out);
  for (size_t i = 0; i < x.size();) {
    const size_t n = std::min<size_t>(x.size() - i, generator() % 700);
    AddToSketch(p + 4 * i, n, DType::kF32, i, kSlots, 1, parts.data(), &left_out);
    i += n;
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const bool minus = Mix(i / 64 ^ 0x5851F42D4C957F2D) >> i % 64 & 1;
    const auto value = static_cast<double>(x[i]);
    expected[i % kSlots + Mix(i / kSlots + 78) % kSlots] += minus ? -value : value;
  }
  EXPECT_EQ(whole, expected);
  EXPECT_EQ(parts, expected);
}

INSTANTIATE_TEST_SUITE_P(Targets, EverySketchTarget,
                         ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const ::testing::TestParamInfo<int64_t>& target) {
                           return std::string(hwy::TargetName(target.param));
                         });

TEST(Sketch, FirstSlotIsWhereElementZeroGoes) {
  for (const uint64_t seed : {0u, 1u, 99u}) {
    const double one = 1;
    std::vector<double> sums(2 * 64);
    SketchLeftOut left_out;
    AddToSketch(reinterpret_cast<const std::byte*>(&one), 1, DType::kF64, 0, 64, seed, sums.data(),
                &left_out);
    FoldSketch(64, sums.data());
    EXPECT_EQ(std::fabs(sums[FirstSlot(64, seed)]), 1);
  }
}

}  // namespace
}  // namespace msprobe::kernels
