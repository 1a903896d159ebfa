#include "metrics/tensor_stats.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/checksum.h"

namespace msprobe::metrics {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Pieces of the view for an order-free reduction: a block without gaps goes by memory, whatever its
// dimensions.
template <class F>
void EachPieceAnyOrder(const TensorView& view, const F& fn) {
  const size_t item = ItemSize(view.dtype), most = kPieceBytes / item;
  const auto cut = [&](const std::byte* data, size_t n) {
    for (size_t done = 0; done < n; done += most) {
      fn(data + done * item, std::min(most, n - done));
    }
  };
  if (!view.IsDense()) return ForEachBlock(view, cut);
  const int64_t n = view.num_elements();
  if (n > 0) cut(view.data, static_cast<size_t>(n));
}

// `add` is called with each piece; `also`, if any, sees the elements in row-major order, with the
// piece when that is the order here.
template <class F>
void EachPiece(const TensorView& view, const PieceFn* also, const F& add) {
  if (also != nullptr && view.IsDense() && !view.IsContiguous()) {
    ForEachPiece(view, *also);
    also = nullptr;
  }
  EachPieceAnyOrder(view, [&](const std::byte* data, size_t n) {
    if (also != nullptr) (*also)(data, n);
    add(data, n);
  });
}

kernels::IntStats IntStatsOfView(const TensorView& view, const PieceFn* also) {
  kernels::IntStats total;
  EachPiece(view, also, [&](const std::byte* data, size_t n) {
    total.Merge(kernels::IntStatsOf(data, n, 1, view.dtype));
  });
  return total;
}

kernels::FloatStats FloatStatsOfView(const TensorView& view, const PieceFn* also) {
  kernels::FloatSums sums(view.dtype);
  EachPiece(view, also, [&](const std::byte* data, size_t n) { sums.Add(data, n); });
  if (view.IsDense()) return sums.FinishBlock(view.data);
  if (sums.InRange()) return sums.Finish();
  kernels::FloatStats total;
  ForEachBlock(view, [&](const std::byte* data, size_t n) {
    total.Merge(kernels::FloatStatsOf(data, n, 1, view.dtype));
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

namespace {

TensorStats Measured(const TensorView& view, const PieceFn* also) {
  switch (KindOf(view.dtype)) {
    case DTypeKind::kFloat:
    case DTypeKind::kComplex:
      return StatsOfFloats(FloatStatsOfView(view, also), view.shape.empty());
    case DTypeKind::kBool:
      return StatsOfBools(IntStatsOfView(view, also));
    default:
      return StatsOfIntegers(IntStatsOfView(view, also));
  }
}

}  // namespace

TensorStats StatsOf(const TensorView& view) { return Measured(view, nullptr); }

TensorStats StatsOf(const TensorView& view, const PieceFn& also) { return Measured(view, &also); }

void ForEachPiece(const TensorView& view, const PieceFn& fn) {
  const size_t item = ItemSize(view.dtype), most = kPieceBytes / item;
  ForEachBlock(view, [&](const std::byte* data, size_t n) {
    for (size_t done = 0; done < n; done += most) {
      fn(data + done * item, std::min(most, n - done));
    }
  });
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
