// Sums that carry their own rounding error.
#pragma once

namespace msprobe::kernels {

// Knuth's TwoSum: the exact error of each addition is kept in `lo`. For n terms the error of
// value() is at most u|S| + n^2 u^2 sum|x_i|, u = 2^-53 (Ogita, Rump & Oishi 2005, Sum2).
struct CompensatedSum {
  double hi = 0, lo = 0;

  void Add(double x) {
    const double s = hi + x;
    const double virtual_x = s - hi;
    lo += (hi - (s - virtual_x)) + (x - virtual_x);
    hi = s;
  }
  void Add(const CompensatedSum& other) {
    Add(other.hi);
    lo += other.lo;
  }
  double value() const { return hi + lo; }
};

}  // namespace msprobe::kernels
