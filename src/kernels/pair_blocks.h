// The vector part of PairErrorsOf: finite elements of equal type on both sides.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/compensated.h"
#include "kernels/pair_errors.h"

namespace msprobe::kernels {

// PairErrors while it grows: sums with their rounding errors. `errors.count` is the number of
// elements seen, and so the index of the next one.
struct PairTotals {
  PairErrors errors;
  CompensatedSum dot, a_sumsq, b_sumsq, diff_sumsq;
};

// Element types of AddFinitePairs. Relative errors are formed in double for kF64, else in float.
enum class PairType : uint8_t { kF16, kBF16, kF32, kF64 };

// Adds contiguous pairs to `totals`, block by block (kBlock elements), and stops in front of the
// first block in which sum(a^2) + sum(b^2) is not finite. Returns the number of pairs added. max |a
// - b| and all sums are formed in double from promoted elements (products of 16- and 32-bit types
// are exact); within a block at least 4 accumulators per sum take at most kBlock / 4 terms each,
// blocks are added with TwoSum: relative error of a sum of squares below 260 * 2^-53 = 2.9e-14.
size_t AddFinitePairs(const std::byte* a, const std::byte* b, size_t n, PairType type,
                      PairTotals* totals);

}  // namespace msprobe::kernels
