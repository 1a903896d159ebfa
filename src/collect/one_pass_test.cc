// Everything that a leaf says of its elements comes from one pass over contiguous memory. A second
// reader of a piece counts as the same pass while that piece is the last 64 KiB that were fetched.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "collect/leaf.h"
#include "tensor/watched_test.h"

namespace msprobe::collect {
namespace {

using config::SummaryMode;

constexpr size_t kPages = 256;  // 1 MiB: sixteen pieces
constexpr size_t kOpen = 18;    // the pages of a piece of 64 KiB, and the one being entered

struct Kind {
  const char* name;
  LeafStyle style;
};

std::vector<Kind> Kinds() {
  LeafStyle full, sketch, md5_and_hash;
  full.hash = true;
  sketch.hash = true;
  sketch.sketch = metrics::SketchSetting{};
  md5_and_hash.summary = SummaryMode::kMd5;
  md5_and_hash.hash = true;
  return {{"statistics", {}},
          {"md5", {.summary = SummaryMode::kMd5}},
          {"xor", {.summary = SummaryMode::kXor}},
          {"hash64", {.summary = SummaryMode::kHash64}},
          {"full", full},
          {"sketch", sketch},
          {"md5 and full", md5_and_hash}};
}

// One of each class of kernels: vector floats, float64, converted floats, complex, integers, bool.
const DType kTypes[] = {DType::kF32, DType::kF16,  DType::kBF16, DType::kF64, DType::kF8E4M3FN,
                        DType::kC64, DType::kC128, DType::kI8,   DType::kI16, DType::kI32,
                        DType::kI64, DType::kU8,   DType::kU64,  DType::kBool};

// Finite numbers of every type, whose squares as float64 are in range.
void FillWithBits(WatchedMemory& memory) {
  uint32_t state = 1;
  for (size_t i = 0; i < memory.bytes(); ++i) {
    state = state * 1664525u + 1013904223u;
    memory.data()[i] = i % 8 == 7 ? std::byte{0x3F} : static_cast<std::byte>(state >> 31);
  }
}

struct Text {
  std::string text;
  int most = 0, fewest = 0;
};

Text Written(WatchedMemory& memory, DType dtype, const LeafStyle& style) {
  const Shape shape = {static_cast<int64_t>(memory.bytes() / ItemSize(dtype))};
  const TensorView view{memory.data(), dtype, shape, {}};
  TensorLeaf leaf;
  leaf.dtype_text = TorchName(dtype);
  leaf.shape = shape;
  leaf.view = &view;
  Text out;
  const Watch watch({&memory});
  AppendTensorLeaf(out.text, leaf, style, {});
  out.most = memory.most_reads();
  out.fewest = memory.fewest_reads();
  return out;
}

TEST(LeafOnePass, StatisticsChecksumHashAndSketchReadThePagesOnce) {
  WatchedMemory memory(kPages, kOpen);
  FillWithBits(memory);
  for (const Kind& kind : Kinds()) {
    for (const DType dtype : kTypes) {
      const bool none = kind.style.summary == SummaryMode::kXor && IsFloat8(dtype);
      if (none) continue;  // null, as upstream
      SCOPED_TRACE(std::string(kind.name) + " of " + std::string(TorchName(dtype)));
      const Text written = Written(memory, dtype, kind.style);
      EXPECT_EQ(written.most, 1);
      EXPECT_EQ(written.fewest, 1);
    }
  }
}

// NaN and infinity in each block take the slower way through it, which is no second pass.
TEST(LeafOnePass, NonFiniteElementsAreNoSecondPass) {
  WatchedMemory memory(kPages, kOpen);
  FillWithBits(memory);
  for (size_t i = 0; i < memory.bytes(); i += 512) {
    memory.data()[i + 2] = std::byte{0x80};
    memory.data()[i + 3] = std::byte{0x7F};  // +inf or NaN as float32
  }
  for (const Kind& kind : Kinds()) {
    const Text written = Written(memory, DType::kF32, kind.style);
    EXPECT_EQ(written.most, 1) << kind.name;
    if (kind.style.summary != SummaryMode::kXor) {
      EXPECT_THAT(written.text, testing::HasSubstr("\"nan\": ")) << kind.name;
    }
  }
}

// The values are those of separate passes, to the last bit; and the watch sees separate passes.
TEST(LeafOnePass, SeparatePassesAreCountedAndGiveTheSame) {
  WatchedMemory memory(kPages, kOpen);
  FillWithBits(memory);
  for (const DType dtype : kTypes) {
    const Shape shape = {static_cast<int64_t>(memory.bytes() / ItemSize(dtype))};
    const TensorView view{memory.data(), dtype, shape, {}};
    SCOPED_TRACE(TorchName(dtype));
    metrics::TensorStats stats;
    uint32_t crc = 0;
    uint64_t hash = 0;
    {
      const Watch watch({&memory});
      stats = metrics::StatsOf(view);
      crc = metrics::Crc32Of(view);
      hash = metrics::Hash64Of(view);
      EXPECT_EQ(memory.most_reads(), 3);
      EXPECT_EQ(memory.fewest_reads(), 3);
    }
    LeafStyle style;
    style.summary = SummaryMode::kMd5;
    style.hash = true;
    TensorLeaf leaf;
    leaf.shape = shape;
    leaf.view = &view;
    metrics::TensorStats together;
    LeafNotes notes;
    notes.measured = &together;
    std::string text;
    AppendTensorLeaf(text, leaf, style, notes);
    EXPECT_EQ(together.max, stats.max);
    EXPECT_EQ(together.min, stats.min);
    EXPECT_EQ(together.mean, stats.mean);
    EXPECT_EQ(together.norm, stats.norm);
    EXPECT_THAT(text, testing::HasSubstr(fmt::format("\"md5\": \"{:08x}\"", crc)));
    EXPECT_THAT(text, testing::HasSubstr(fmt::format("\"hash64\": \"{:016x}\"", hash)));
  }
}

// What is read twice, as metrics/tensor_stats.h says.
TEST(LeafOnePass, ScaledSumsAreASecondPassAndPermutedBlocksAreNot) {
  WatchedMemory memory(kPages, kOpen);
  for (size_t i = 0; i < memory.bytes(); ++i) memory.data()[i] = std::byte{0x7E};  // 5e300
  EXPECT_EQ(Written(memory, DType::kF64, {}).most, 2);
  EXPECT_EQ(Written(memory, DType::kF32, {}).most, 1);
  const Shape shape = {512, 512};
  const std::vector<int64_t> strides = {1, 512};
  const TensorView view{memory.data(), DType::kF32, shape, strides};
  TensorLeaf leaf;
  leaf.shape = shape;
  leaf.view = &view;
  std::string text;
  const Watch watch({&memory});
  AppendTensorLeaf(text, leaf, {}, {});
  EXPECT_EQ(memory.most_reads(), 1);  // statistics go by memory
}

}  // namespace
}  // namespace msprobe::collect
