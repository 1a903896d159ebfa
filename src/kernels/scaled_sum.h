// Sums of squares that may leave double's range: a number and a power of two that its elements were
// divided by.
#pragma once

#include <algorithm>
#include <cmath>

namespace msprobe::kernels {

// Below this a sum of squares may have lost elements to underflow: above it, squares under 2^-1022
// are less than 2^-122 of it.
inline constexpr double kTinySum = 0x1p-900;

inline bool OutOfRange(double sumsq) { return !std::isfinite(sumsq) || sumsq < kTinySum; }

// sumsq * scale^2 += other * other_scale^2. A zero sum has no say in the scale.
inline void MergeScaled(double* sumsq, double* scale, double other, double other_scale) {
  if (other == 0) return;
  if (*sumsq == 0) {
    *sumsq = other;
    *scale = other_scale;
    return;
  }
  const auto add_at = [&](double s) {
    const double ra = *scale / s, rb = other_scale / s;
    return *sumsq * ra * ra + other * rb * rb;
  };
  double s = std::max(*scale, other_scale);
  double total = add_at(s);
  if (std::isinf(total)) {  // only sums at scale 1 come near the limit: scaled ones are below 4n
    s = 0x1p64;
    total = add_at(s);
  }
  *sumsq = total;
  *scale = s;
}

}  // namespace msprobe::kernels
