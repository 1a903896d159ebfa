// One-pass errors between two runs of elements of equal count.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace msprobe::kernels {

// The precision in which |(a - b) / b| is formed (compare.md 7.3): float32 for half/single pairs,
// float64 otherwise.
enum class WorkType : uint8_t { kF32, kF64 };

// a = target N, b = golden B. Elements where both are NaN, or both infinite of the same sign, count
// as 0 on both sides; other pairs with a non-finite element are counted in `class_mismatch` and
// left out of the sums. All sums in double.
struct PairErrors {
  uint64_t count = 0;
  uint64_t class_mismatch = 0;  // NaN/+inf/-inf positions that differ
  uint64_t both_nan = 0, both_inf = 0;
  double dot = 0, a_sumsq = 0, b_sumsq = 0, diff_sumsq = 0;
  double max_abs = 0;             // max |a - b|
  double max_rel = 0;             // max |(a' - b') / b'|, where b = 0 adds eps(work) to both
  uint64_t below_thousandth = 0;  // relative error strictly < 0.001 in the work type
  uint64_t below_five_thousandths = 0;
  uint64_t rel_nan =
      0;  // relative errors that are NaN: those of the pairs in class_mismatch (no others can be)
  uint64_t unequal = 0;        // elements that differ (bit value; +0 equals -0; both NaN equal)
  uint64_t first_unequal = 0;  // index of the first, when unequal > 0
  uint64_t max_abs_index = 0;  // of the largest |a - b|
  // Powers of two, not 1 when a sum of squares would overflow or vanish in double though its
  // elements do not (float64 only): diff_sumsq is of differences divided by `scale`, a_sumsq of a /
  // a_scale, b_sumsq of b / b_scale, dot of both. A cosine needs none of them; a norm is a_scale *
  // sqrt(a_sumsq), the distance scale * sqrt(diff_sumsq).
  double scale = 1, a_scale = 1, b_scale = 1;

  void Merge(const PairErrors& later);  // `later` follows this one in element order
};

// Both runs have `n` contiguous elements; dtypes may differ (values are compared). Complex: both
// must be complex, compared as 2n real values, relative errors by magnitude. bool and integers as
// double, except that differences of integers are formed exactly before rounding.
PairErrors PairErrorsOf(const std::byte* a, DType a_dtype, const std::byte* b, DType b_dtype,
                        size_t n, WorkType work);

}  // namespace msprobe::kernels
