#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "tensor/convert.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

namespace msprobe {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

TEST(DType, NamesRoundTripForEveryType) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const DType t = static_cast<DType>(i);
    EXPECT_EQ(DTypeFromTorchName(TorchName(t)), t);
    EXPECT_EQ(DTypeFromTorchName(ShortName(t)), t);
  }
  EXPECT_EQ(TorchName(DType::kBF16), "torch.bfloat16");
  EXPECT_EQ(ShortName(DType::kF8E4M3FN), "float8_e4m3fn");
}

TEST(DType, AliasesOfTorchAreKnownAndTagsOfSafetensorsAreNot) {
  EXPECT_EQ(DTypeFromTorchName("torch.half"), DType::kF16);
  EXPECT_EQ(DTypeFromTorchName("float"), DType::kF32);
  EXPECT_EQ(DTypeFromTorchName("torch.double"), DType::kF64);
  EXPECT_EQ(DTypeFromTorchName("short"), DType::kI16);
  EXPECT_EQ(DTypeFromTorchName("torch.int"), DType::kI32);
  EXPECT_EQ(DTypeFromTorchName("torch.long"), DType::kI64);
  EXPECT_EQ(DTypeFromTorchName("cfloat"), DType::kC64);
  EXPECT_EQ(DTypeFromTorchName("cdouble"), DType::kC128);
  EXPECT_EQ(DTypeFromTorchName("chalf"), DType::kC32);
  for (const char* name :
       {"", "torch.", "F32", "BF16", "Float32", "torch.torch.float32", "numpy.float32"}) {
    EXPECT_EQ(DTypeFromTorchName(name), std::nullopt) << name;
  }
}

TEST(DType, SizesKindsAndRealParts) {
  EXPECT_EQ(ItemSize(DType::kBool), 1u);
  EXPECT_EQ(ItemSize(DType::kF8E8M0FNU), 1u);
  EXPECT_EQ(ItemSize(DType::kBF16), 2u);
  EXPECT_EQ(ItemSize(DType::kC128), 16u);
  EXPECT_EQ(KindOf(DType::kU64), DTypeKind::kUnsigned);
  EXPECT_EQ(RealOf(DType::kC32), DType::kF16);
  EXPECT_EQ(RealOf(DType::kC64), DType::kF32);
  EXPECT_EQ(RealOf(DType::kI8), DType::kI8);
  EXPECT_TRUE(IsExact(DType::kBool) && IsExact(DType::kI64) && !IsExact(DType::kF16));
  EXPECT_TRUE(IsFloat8(DType::kF8E5M2FNUZ) && !IsFloat8(DType::kC32) && !IsFloat8(DType::kF64));
}

// Each figure is a code of the type itself: u is half the step after 1, found with the conversions.
TEST(DType, RoundoffAndRangeAgreeWithTheCodes) {
  EXPECT_EQ(2 * UnitRoundoff(DType::kF32), std::numeric_limits<float>::epsilon());
  EXPECT_EQ(2 * UnitRoundoff(DType::kC128), std::numeric_limits<double>::epsilon());
  EXPECT_EQ(LargestFinite(DType::kF32), std::numeric_limits<float>::max());
  EXPECT_EQ(LargestFinite(DType::kF64), std::numeric_limits<double>::max());
  EXPECT_EQ(SmallestNormal(DType::kF64), std::numeric_limits<double>::min());
  EXPECT_EQ(2 * UnitRoundoff(DType::kF16), HalfToFloat(0x3C01) - HalfToFloat(0x3C00));
  EXPECT_EQ(LargestFinite(DType::kF16), HalfToFloat(0x7BFF));
  EXPECT_EQ(SmallestNormal(DType::kF16), HalfToFloat(0x0400));
  EXPECT_EQ(2 * UnitRoundoff(DType::kBF16), BFloat16ToFloat(0x3F81) - 1.0f);
  EXPECT_EQ(LargestFinite(DType::kBF16), BFloat16ToFloat(0x7F7F));
  EXPECT_EQ(2 * UnitRoundoff(DType::kF8E4M3FN), Float8E4M3FNToFloat(0x39) - 1.0f);
  EXPECT_EQ(LargestFinite(DType::kF8E4M3FN), Float8E4M3FNToFloat(0x7E));
  EXPECT_EQ(SmallestNormal(DType::kF8E4M3FN), Float8E4M3FNToFloat(0x08));
  EXPECT_EQ(LargestFinite(DType::kF8E4M3FNUZ), Float8E4M3FNUZToFloat(0x7F));
  EXPECT_EQ(SmallestNormal(DType::kF8E4M3FNUZ), Float8E4M3FNUZToFloat(0x08));
  EXPECT_EQ(2 * UnitRoundoff(DType::kF8E5M2), Float8E5M2ToFloat(0x3D) - 1.0f);
  EXPECT_EQ(LargestFinite(DType::kF8E5M2), Float8E5M2ToFloat(0x7B));
  EXPECT_EQ(LargestFinite(DType::kF8E5M2FNUZ), Float8E5M2FNUZToFloat(0x7F));
  EXPECT_EQ(SmallestNormal(DType::kF8E5M2FNUZ), Float8E5M2FNUZToFloat(0x04));
  EXPECT_EQ(LargestFinite(DType::kF8E8M0FNU), Float8E8M0FNUToFloat(0xFE));
  EXPECT_EQ(UnitRoundoff(DType::kI32), 0);
  EXPECT_EQ(LargestFinite(DType::kI8), 127);
}

TEST(Convert, HalfCodesOfTheStandard) {
  EXPECT_EQ(HalfToFloat(0x3555), 0x1.554p-2f);
  EXPECT_EQ(HalfToFloat(0x0001), 0x1p-24f);
  EXPECT_EQ(HalfToFloat(0x83FF), -0x1.FF8p-15f);
  EXPECT_EQ(HalfToFloat(0xFC00), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(HalfToFloat(0x7C01)));
  EXPECT_TRUE(std::signbit(HalfToFloat(0x8000)));
}

TEST(Convert, EveryHalfComesBackFromFloat) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = HalfToFloat(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(value))));
    } else {
      ASSERT_EQ(FloatToHalf(value), half);
    }
  }
}

// Between two neighbours the nearer one is taken, in the middle the even one.
TEST(Convert, FloatToHalfRoundsToNearestEven) {
  for (uint16_t bits = 0; bits < 0x7BFF; ++bits) {
    const float low = HalfToFloat(bits), high = HalfToFloat(static_cast<uint16_t>(bits + 1));
    const float middle = low + (high - low) / 2;  // exact in float
    const auto even = static_cast<uint16_t>(bits + (bits & 1));
    ASSERT_EQ(FloatToHalf(middle), even) << bits;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 0.0f)), bits);
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 1e9f)), bits + 1);
    ASSERT_EQ(FloatToHalf(-middle), even | 0x8000);
  }
  EXPECT_EQ(FloatToHalf(65519.996f), 0x7BFF);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7C00);
  EXPECT_EQ(FloatToHalf(3e38f), 0x7C00);
  EXPECT_EQ(FloatToHalf(0x1p-25f), 0);
  EXPECT_EQ(FloatToHalf(0x1.000002p-25f), 1);
  EXPECT_EQ(FloatToHalf(1e-45f), 0);
}

TEST(Convert, FloatToBFloat16RoundsToNearestEven) {
  EXPECT_EQ(FloatToBFloat16(1.0f), 0x3F80);
  EXPECT_EQ(FloatToBFloat16(0x1.01p0f), 0x3F80);      // middle of 1 and its neighbour: even
  EXPECT_EQ(FloatToBFloat16(0x1.03p0f), 0x3F82);      // middle above an odd code
  EXPECT_EQ(FloatToBFloat16(0x1.010002p0f), 0x3F81);  // just above the middle
  EXPECT_EQ(FloatToBFloat16(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(FloatToBFloat16(-std::numeric_limits<float>::infinity()), 0xFF80);
  // A NaN whose payload lies in the dropped half stays NaN.
  EXPECT_TRUE(std::isnan(BFloat16ToFloat(FloatToBFloat16(std::bit_cast<float>(0x7F800001u)))));
}

TEST(Convert, Float8SpecialCodes) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isnan(Float8E4M3FNToFloat(0x7F)) && std::isnan(Float8E4M3FNToFloat(0xFF)));
  EXPECT_TRUE(std::signbit(Float8E4M3FNToFloat(0x80)));
  EXPECT_EQ(Float8E4M3FNToFloat(0x01), 0x1p-9f);
  EXPECT_TRUE(std::isnan(Float8E4M3FNUZToFloat(0x80)));
  EXPECT_EQ(Float8E4M3FNUZToFloat(0x01), 0x1p-10f);
  EXPECT_EQ(Float8E5M2ToFloat(0x7C), inf);
  EXPECT_EQ(Float8E5M2ToFloat(0xFC), -inf);
  EXPECT_TRUE(std::isnan(Float8E5M2ToFloat(0x7D)));
  EXPECT_EQ(Float8E5M2ToFloat(0x01), 0x1p-16f);
  EXPECT_TRUE(std::isnan(Float8E5M2FNUZToFloat(0x80)));
  EXPECT_EQ(Float8E5M2FNUZToFloat(0xFF), -57344.0f);
  EXPECT_TRUE(std::isnan(Float8E8M0FNUToFloat(0xFF)));
  EXPECT_EQ(Float8E8M0FNUToFloat(0), 0x1p-127f);
  EXPECT_EQ(Float8E8M0FNUToFloat(127), 1.0f);
}

TEST(Shapes, NumElements) {
  EXPECT_EQ(NumElements(Shape{}), 1);
  EXPECT_EQ(NumElements(Shape{2, 3, 4}), 24);
  EXPECT_EQ(NumElements(Shape{2, -1}), std::nullopt);
  EXPECT_EQ(NumElements(Shape{0, -1}), std::nullopt);
  EXPECT_EQ(NumElements(Shape{int64_t{1} << 32, int64_t{1} << 31}), std::nullopt);
  EXPECT_EQ(NumElements(Shape{int64_t{1} << 32, int64_t{1} << 32, 0}), 0);
}

TEST(Shapes, TextStridesAndSqueezing) {
  EXPECT_EQ(ShapeText(Shape{}), "[]");
  EXPECT_EQ(ShapeText(Shape{2, 3}), "[2, 3]");
  EXPECT_THAT(ContiguousStrides(Shape{2, 3, 4}), ElementsAre(12, 4, 1));
  EXPECT_THAT(ContiguousStrides(Shape{}), ElementsAre());
  EXPECT_THAT(Squeezed(Shape{1, 3, 1, 2}), ElementsAre(3, 2));
  EXPECT_THAT(Squeezed(Shape{1, 1}), ElementsAre());
}

// A view of int16 values 0, 1, 2, … starting `offset` elements in.
struct Fixture {
  std::vector<int16_t> data;
  Shape shape;
  std::vector<int64_t> strides;
  size_t offset = 0;

  Fixture(Shape s, std::vector<int64_t> st, size_t at = 0)
      : data(4000), shape(std::move(s)), strides(std::move(st)), offset(at) {
    std::iota(data.begin(), data.end(), int16_t{0});
  }
  TensorView view() const {
    return {reinterpret_cast<const std::byte*>(data.data() + offset), DType::kI16, shape, strides};
  }
  // Row-major order by plain index arithmetic.
  std::vector<int16_t> Expected() const {
    std::vector<int16_t> out;
    const int64_t n = NumElements(shape).value();
    for (int64_t flat = 0; flat < n; ++flat) {
      int64_t rest = flat, at = static_cast<int64_t>(offset);
      for (size_t d = shape.size(); d-- > 0;) {
        at += rest % shape[d] * strides[d];
        rest /= shape[d];
      }
      out.push_back(data[static_cast<size_t>(at)]);
    }
    return out;
  }
};

std::vector<Fixture> Fixtures() {
  std::vector<Fixture> all;
  all.emplace_back(Shape{}, std::vector<int64_t>{}, 7);
  all.emplace_back(Shape{5}, std::vector<int64_t>{1});
  all.emplace_back(Shape{5}, std::vector<int64_t>{3}, 2);
  all.emplace_back(Shape{5}, std::vector<int64_t>{-2}, 20);
  all.emplace_back(Shape{5}, std::vector<int64_t>{0}, 3);
  all.emplace_back(Shape{3, 4}, std::vector<int64_t>{4, 1});
  all.emplace_back(Shape{3, 4}, std::vector<int64_t>{1, 3});
  all.emplace_back(Shape{3, 4}, std::vector<int64_t>{8, 2}, 1);
  all.emplace_back(Shape{3, 4}, std::vector<int64_t>{0, 1});
  all.emplace_back(Shape{1, 4, 1}, std::vector<int64_t>{77, 1, -5});
  all.emplace_back(Shape{2, 3, 4}, std::vector<int64_t>{1, 8, 2});
  all.emplace_back(Shape{2, 3, 4}, std::vector<int64_t>{-12, 4, 1}, 12);
  all.emplace_back(Shape{7, 9, 11, 3}, std::vector<int64_t>{1, 7, 189, 63}, 5);
  all.emplace_back(Shape{60, 60}, std::vector<int64_t>{1, 60});
  all.emplace_back(Shape{2, 0, 3}, std::vector<int64_t>{3, 3, 1});
  return all;
}

TEST(View, CopyCursorBlocksAndRunsVisitElementsInRowMajorOrder) {
  for (const Fixture& f : Fixtures()) {
    SCOPED_TRACE(ShapeText(f.shape) + " " + ShapeText(f.strides));
    const std::vector<int16_t> expected = f.Expected();
    std::vector<int16_t> copy(expected.size());
    CopyContiguous(f.view(), reinterpret_cast<std::byte*>(copy.data()));
    EXPECT_THAT(copy, ElementsAreArray(expected));

    std::vector<int16_t> blocks;
    ForEachBlock(f.view(), [&](const std::byte* data, size_t n) {
      const size_t old = blocks.size();
      blocks.resize(old + n);
      std::memcpy(blocks.data() + old, data, 2 * n);
    });
    EXPECT_THAT(blocks, ElementsAreArray(expected));

    std::vector<int16_t> runs;
    ForEachRun(f.view(), [&](const std::byte* data, int64_t n, int64_t stride) {
      for (int64_t i = 0; i < n; ++i)
        runs.push_back(reinterpret_cast<const int16_t*>(data)[i * stride]);
    });
    EXPECT_THAT(runs, ElementsAreArray(expected));

    for (const size_t step : {size_t{1}, size_t{2}, size_t{7}, size_t{1000}}) {
      ElementCursor cursor(f.view());
      std::vector<int16_t> pieces(expected.size());
      for (size_t i = 0; i < pieces.size(); i += step) {
        cursor.Next(std::min(step, pieces.size() - i),
                    reinterpret_cast<std::byte*>(pieces.data() + i));
      }
      EXPECT_THAT(pieces, ElementsAreArray(expected));
    }
  }
}

TEST(View, ContiguousViewIsOneRunAndPermutedNeighboursAreMerged) {
  const auto runs = [](const Fixture& f) {
    int count = 0;
    ForEachRun(f.view(), [&](const std::byte*, int64_t, int64_t) { ++count; });
    return count;
  };
  EXPECT_EQ(runs(Fixture(Shape{2, 3, 4}, {12, 4, 1})), 1);
  EXPECT_EQ(runs(Fixture(Shape{2, 3, 4}, {24, 8, 2})), 1);
  EXPECT_EQ(runs(Fixture(Shape{2, 3, 4}, {20, 4, 1})), 2);
  EXPECT_EQ(runs(Fixture(Shape{0}, {1})), 0);
}

TEST(View, ContiguousAndDense) {
  struct Row {
    Fixture f;
    bool contiguous, dense;
  };
  const Row rows[] = {
      {Fixture(Shape{}, {}), true, true},
      {Fixture(Shape{2, 3}, {3, 1}), true, true},
      {Fixture(Shape{2, 1, 3}, {3, 99, 1}), true, true},
      {Fixture(Shape{2, 3}, {1, 2}), false, true},
      {Fixture(Shape{2, 3, 4}, {4, 8, 1}), false, true},
      {Fixture(Shape{2, 3}, {4, 1}), false, false},
      {Fixture(Shape{2, 3}, {0, 1}), false, false},
      {Fixture(Shape{3}, {-1}, 5), false, false},
      {Fixture(Shape{2, 2}, {1, 1}), false, false},
      {Fixture(Shape{0, 3}, {7, 5}), true, true},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(ShapeText(row.f.shape) + " " + ShapeText(row.f.strides));
    EXPECT_EQ(row.f.view().IsContiguous(), row.contiguous);
    EXPECT_EQ(row.f.view().IsDense(), row.dense);
  }
  const Shape shape{2, 3};
  EXPECT_TRUE((TensorView{nullptr, DType::kF32, shape, {}}.IsContiguous()));
}

TEST(View, ItemsOfEverySizeAreGathered) {
  for (const DType t : {DType::kU8, DType::kF16, DType::kF32, DType::kF64, DType::kC128}) {
    const size_t item = ItemSize(t);
    std::vector<std::byte> bytes(item * 6);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
    const Shape shape{3};
    const std::vector<int64_t> strides{2};
    std::vector<std::byte> out(3 * item);
    CopyContiguous({bytes.data(), t, shape, strides}, out.data());
    for (size_t i = 0; i < out.size(); ++i) {
      EXPECT_EQ(out[i], static_cast<std::byte>(i / item * 2 * item + i % item));
    }
  }
}

}  // namespace
}  // namespace msprobe
