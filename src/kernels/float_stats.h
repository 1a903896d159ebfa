// The vector part of FloatStatsOf: finite elements only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/compensated.h"
#include "tensor/dtype.h"

namespace msprobe::kernels {

// Of finite elements. min > max when there are none.
struct FloatTotals {
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  CompensatedSum sum, sumsq;
};

// Adds elements of a contiguous run (float16, bfloat16, float32, float64) to `totals`, block by
// block (kBlock elements from `data` on), and stops in front of the first block whose sum of
// squares is not finite: one with NaN or infinity or, float64 only, an overflow. Returns the number
// of elements added.
//
// Accuracy. Elements are promoted to double before any arithmetic; squares of 16- and 32-bit types
// are exact there. Within a block each of at least 8 double accumulators takes at most kBlock / 8 =
// 128 terms, blocks are added with TwoSum: the error of sum is below 132 * 2^-53 * sum|x|, that of
// sumsq below 133 * 2^-53 * sumsq (1.5e-14). float64 sums use TwoSum per element: 2^-53 |S| + n^2
// 2^-106 sum|x|. The last bits depend on the vector width, never on alignment.
size_t AddFiniteBlocks(const std::byte* data, size_t n, DType dtype, FloatTotals* totals);

struct NonFiniteCounts {
  uint64_t nan = 0, pos_inf = 0, neg_inf = 0;
};

// One element, of any class.
inline void AddOne(double x, FloatTotals* totals, NonFiniteCounts* counts) {
  if (std::isnan(x)) {
    ++counts->nan;
  } else if (std::isinf(x)) {
    ++(x > 0 ? counts->pos_inf : counts->neg_inf);
  } else {
    totals->min = std::min(totals->min, x);
    totals->max = std::max(totals->max, x);
    totals->sum.Add(x);
    totals->sumsq.Add(x * x);
  }
}

// Adds the finite ones of at most kBlock values to `totals` and counts the others, with the
// accuracy above. False, and nothing is added: the sum of squares of the finite ones is not finite.
bool AddMixedBlock(const double* values, size_t n, FloatTotals* totals, NonFiniteCounts* counts);

// Name of the vector target that the calls above take on this CPU.
const char* TargetName();

}  // namespace msprobe::kernels
