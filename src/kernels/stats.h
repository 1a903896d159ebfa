// One-pass statistics of elements in memory. Pointer and count; no policy, no allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/float_stats.h"
#include "tensor/dtype.h"

namespace msprobe::kernels {

// Of floating elements. Sums are over all finite elements, accumulated in double (float64:
// compensated). min/max are over the non-NaN elements, infinities included; +inf/-inf (min > max)
// when there are none. finite_min/finite_max are over the finite ones. The fast path knows there is
// nothing non-finite when sumsq is finite.
struct FloatStats {
  uint64_t count = 0, nan = 0, pos_inf = 0, neg_inf = 0;
  double min = 0, max = 0;
  double finite_min = 0, finite_max = 0;
  double sum = 0, sumsq = 0;
  // Not 1 when the sum of squares of the (finite) elements left double's range at either end: sumsq
  // is then of elements divided by this power of two, norm = scale * sqrt(sumsq).
  double scale = 1;
  double sum_scale =
      1;  // the same for `sum`, which only ever overflows: the true sum is sum * sum_scale

  void Merge(const FloatStats& other);
};

// Of integers and bools; exact.
struct IntStats {
  uint64_t count = 0;
  bool is_unsigned = false;  // uint64 only: read min/max as uint64_t
  int64_t min = 0, max = 0;  // bit patterns of uint64_t when is_unsigned; 0 when count is 0
  __extension__ __int128 sum = 0;
  double sumsq = 0;  // in double: relative error about n * 2^-53

  void Merge(const IntStats& other);
};

// `data` needs no alignment; `n` elements, `stride` apart (in elements; 1 = contiguous, may be
// negative or 0). FloatStatsOf: any floating dtype. For complex dtypes: of the magnitudes |z|
// (double).
FloatStats FloatStatsOf(const std::byte* data, size_t n, ptrdiff_t stride, DType dtype);
IntStats IntStatsOf(const std::byte* data, size_t n, ptrdiff_t stride, DType dtype);

// FloatStatsOf of elements that arrive in contiguous pieces, one after the other. Pieces of a
// multiple of kBlock elements give what one piece gives, but for the rounding of compensated sums.
class FloatSums {
 public:
  explicit FloatSums(DType dtype) : dtype_(dtype) {}
  void Add(const std::byte* data, size_t n);
  // False: the sums of float64 or complex128 left double's range.
  bool InRange() const;
  FloatStats Finish() const;
  // Of elements that lie in one block, from `data` on: sums out of range are scaled, for which the
  // elements are read again.
  FloatStats FinishBlock(const std::byte* data) const;

 private:
  DType dtype_;
  uint64_t count_ = 0;
  FloatTotals totals_;
  NonFiniteCounts counts_;
};

// Name of the vector target in use on this CPU: "AVX3", "AVX2", "SSE4", "NEON", ….
std::string_view ActiveTarget();

}  // namespace msprobe::kernels
