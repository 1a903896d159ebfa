#include "metrics/tensor_stats.h"

#include <bit>
#include <cmath>
#include <limits>

#include "kernels/checksum.h"

namespace msprobe::metrics {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The view's elements as contiguous blocks. Order does not matter to `fn`: a dense view is one
// block whatever its dimensions.
template <class F>
void EachBlockAnyOrder(const TensorView& view, const F& fn) {
  if (view.IsDense()) {
    const int64_t n = view.num_elements();
    if (n > 0) fn(view.data, static_cast<size_t>(n));
    return;
  }
  ForEachBlock(view, fn);
}

template <class Stats, class F>
Stats Gathered(const TensorView& view, const F& of_block) {
  Stats total;
  EachBlockAnyOrder(view, [&](const std::byte* data, size_t n) {
    total.Merge(of_block(data, n, 1, view.dtype));
  });
  return total;
}

TensorStats StatsOfBools(const kernels::IntStats& s) {
  TensorStats out;
  if (s.count == 0) return out;
  out.max = s.max != 0;
  out.min = s.min != 0;
  return out;
}

double MeanOfFloats(const kernels::FloatStats& s) {
  if (s.pos_inf > 0) return s.neg_inf > 0 ? kNan : kInf;
  if (s.neg_inf > 0) return -kInf;
  return s.sum / static_cast<double>(s.count) * s.sum_scale;
}

double NormOfFloats(const kernels::FloatStats& s, bool rank_zero) {
  if (s.pos_inf + s.neg_inf > 0) return kInf;
  if (rank_zero) return std::fabs(s.max);
  return s.scale * std::sqrt(s.sumsq);
}

Number Integer(int64_t bits, bool is_unsigned) {
  if (is_unsigned) return static_cast<uint64_t>(bits);
  return bits;
}

}  // namespace

TensorStats StatsOfFloats(const kernels::FloatStats& s, bool rank_zero) {
  TensorStats out;
  if (s.count == 0) return out;
  out.nan = s.nan;
  out.inf = s.pos_inf + s.neg_inf;
  if (out.nan + out.inf > 0 && s.finite_min <= s.finite_max) {
    out.finite_max = s.finite_max;
    out.finite_min = s.finite_min;
  }
  if (s.nan > 0) {
    out.max = out.min = out.mean = out.norm = kNan;
    return out;
  }
  out.max = s.max;
  out.min = s.min;
  out.mean = MeanOfFloats(s);
  out.norm = NormOfFloats(s, rank_zero);
  return out;
}

TensorStats StatsOfIntegers(const kernels::IntStats& s) {
  TensorStats out;
  if (s.count == 0) return out;
  out.max = Integer(s.max, s.is_unsigned);
  out.min = Integer(s.min, s.is_unsigned);
  out.mean = static_cast<double>(s.sum) / static_cast<double>(s.count);
  out.norm = std::sqrt(s.sumsq);
  return out;
}

TensorStats StatsOf(const TensorView& view) {
  switch (KindOf(view.dtype)) {
    case DTypeKind::kFloat:
    case DTypeKind::kComplex:
      return StatsOfFloats(Gathered<kernels::FloatStats>(view, kernels::FloatStatsOf),
                           view.shape.empty());
    case DTypeKind::kBool:
      return StatsOfBools(Gathered<kernels::IntStats>(view, kernels::IntStatsOf));
    default:
      return StatsOfIntegers(Gathered<kernels::IntStats>(view, kernels::IntStatsOf));
  }
}

uint32_t Crc32Of(const TensorView& view) {
  const size_t item = ItemSize(view.dtype);
  uint32_t crc = 0;
  ForEachBlock(view,
               [&](const std::byte* data, size_t n) { crc = kernels::Crc32(crc, data, n * item); });
  return crc;
}

uint64_t Xor64Of(const TensorView& view) {
  const size_t item = ItemSize(view.dtype);
  uint64_t result = 0;
  size_t phase = 0;  // bytes of the open word
  ForEachBlock(view, [&](const std::byte* data, size_t n) {
    // A block that starts `phase` bytes into a word has each of its bytes `phase` places up, round
    // the word.
    result ^= std::rotl(kernels::Xor64(data, n * item), static_cast<int>(8 * phase));
    phase = (phase + n * item) % 8;
  });
  return result;
}

uint64_t Hash64Of(const TensorView& view) {
  const size_t item = ItemSize(view.dtype);
  uint64_t hash = 0, first = 0;
  ForEachBlock(view, [&](const std::byte* data, size_t n) {
    hash += kernels::Hash64(data, n, item, first);
    first += n;
  });
  return hash;
}

}  // namespace msprobe::metrics
