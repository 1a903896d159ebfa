// The figures of one output pair of the pre-check, in one pass over both arrays.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "precheck/lists.h"
#include "tensor/view.h"

namespace msprobe::precheck {

// Everything any algorithm may need of a pair of floating arrays; the choice of what is shown is
// judge.h's.
//
// b: reference ("bench"), float64 or float32; d: device, float16, bfloat16, float32 or float64
// (bfloat16: both sides are float32). Arithmetic follows NumPy's promotion: float64 when either is
// float64, float32 otherwise; sums are taken in double.
//   ae = |d - b|, ab = |b|, eps = 2^-8 for bfloat16, else the machine epsilon of b's dtype; rel0 =
//   ae / (ab + eps) c = b rounded to d's dtype; finite = c and d finite; small = finite and ab <=
//   small value; normal = finite and not small.
struct Figures {
  uint64_t count = 0;

  // cosine and maxima
  double cosine = 0;  // NaN when any value is NaN or infinite
  double max_abs_device = 0, max_abs_bench = 0;
  double max_abs_error = 0;  // NaN when any error is NaN
  uint64_t below_hundredth = 0, below_thousandth = 0, below_ten_thousandth = 0;

  // the same over the elements that are not masked (both NaN, or both the same infinity after
  // rounding)
  double masked_cosine = 0, masked_max_abs_error = 0;
  uint64_t masked = 0;  // elements left out
  uint64_t masked_below_hundredth = 0, masked_below_thousandth = 0, masked_below_ten_thousandth = 0;
  // NaN or infinity on one side only, or infinities of other sign (classes of c and d differ)
  uint64_t class_mismatch = 0;
  // rel0 with limits that a correctly rounded bfloat16 meets (2^-6 and 2^-8)
  uint64_t masked_below_wide = 0, masked_below_rounding = 0;

  // benchmark algorithm
  uint64_t small = 0, small_errors = 0;
  double rmse = 0;
  double balance = 0;  // |#(d > c) - #(d < c)| / N
  double max_rel = 0, mean_rel = 0;
  uint64_t normal = 0;

  // absolute threshold algorithm
  uint64_t inf_nan = 0, inf_nan_errors = 0;
  uint64_t normal_errors = 0;  // ae / (ab + eps) > rtol
  uint64_t small_errors_absolute = 0;

  // accumulative error algorithm: small value 1, both tolerances the bound
  uint64_t acc_small = 0, acc_small_errors = 0, acc_normal = 0, acc_normal_errors = 0,
           acc_inf_nan_errors = 0;

  // ULP algorithm
  double max_ulp = 0, mean_ulp = 0;
  uint64_t over_ulp = 0;

  uint64_t unequal = 0;  // b != d, NaN different from everything
  bool single = false;   // arithmetic and cells in single precision
};

// `bench` and `device` have the same number of elements, contiguous. Empty arrays: everything zero.
// `scale` > 0: the masked_below counts take an element as right, too, when its absolute error is
// below the limit times `scale`, the magnitude of the terms that were added up.
Figures FiguresOf(const TensorView& bench, const TensorView& device, double scale = 0,
                  SmallValues tables = SmallValues::kOriginal);
// Root mean square of the finite elements; 0 when there are none or it overflows.
double RootMeanSquare(const TensorView& view);

// Bool and integer arrays of equal count, any two exact dtypes, compared by value.
struct ExactFigures {
  uint64_t count = 0, unequal = 0;
  uint64_t max_abs_difference = 0;  // exact, in 65 bits, clamped to 2^64-1
};
ExactFigures ExactFiguresOf(const TensorView& bench, const TensorView& device);

// Dropout: zeros on either side.
uint64_t ZerosOf(const TensorView& view);

}  // namespace msprobe::precheck
