#include "kernels/stats.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/compensated.h"
#include "kernels/load.h"
#include "kernels/scaled_sum.h"

namespace msprobe::kernels {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// At most kBlock elements of which not all are finite.
void AddMixed(const double* x, size_t n, FloatTotals* totals, NonFiniteCounts* counts) {
  if (AddMixedBlock(x, n, totals, counts)) return;
  for (size_t i = 0; i < n; ++i) AddOne(x[i], totals, counts);
}

void AddDoubles(const double* x, size_t n, FloatTotals* totals, NonFiniteCounts* counts) {
  const auto* bytes = reinterpret_cast<const std::byte*>(x);
  if (AddFiniteBlocks(bytes, n, DType::kF64, totals) != n) AddMixed(x, n, totals, counts);
}

// A source of elements as doubles, at most kBlock at a time: magnitudes of complex elements, values
// of others.
void LoadValues(const std::byte* data, ptrdiff_t stride, size_t n, DType dtype, double* out) {
  if (!IsComplex(dtype)) return LoadDoubles(data, stride, n, dtype, out);
  std::array<double, 2 * kBlock> parts;
  LoadComplex(data, stride, n, dtype, parts.data());
  const bool wide = dtype == DType::kC128;  // squares of narrower parts stay inside double's range
  for (size_t i = 0; i < n; ++i) {
    const double re = parts[2 * i], im = parts[2 * i + 1];
    const double sumsq = re * re + im * im;
    out[i] = wide || !std::isfinite(sumsq) ? std::hypot(re, im) : std::sqrt(sumsq);
  }
}

// Calls fn(values, count) for the elements in blocks of kBlock.
template <class F>
void EachBlockOfDoubles(const std::byte* data, size_t n, ptrdiff_t stride, DType dtype,
                        const F& fn) {
  const ptrdiff_t step = stride * static_cast<ptrdiff_t>(ItemSize(dtype));
  std::array<double, kBlock> values;
  for (size_t i = 0; i < n; i += kBlock) {
    const size_t m = std::min(kBlock, n - i);
    const std::byte* p = data + static_cast<ptrdiff_t>(i) * step;
    LoadValues(p, stride, m, dtype, values.data());
    fn(values.data(), m);
  }
}

bool HasVectorKernel(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 ||
         dtype == DType::kF64;
}

// Contiguous elements of a type with a vector kernel.
void AddContiguous(const std::byte* data, size_t n, DType dtype, FloatTotals* totals,
                   NonFiniteCounts* counts) {
  const size_t item = ItemSize(dtype);
  std::array<double, kBlock> values;
  size_t done = 0;
  for (;;) {
    done += AddFiniteBlocks(data + done * item, n - done, dtype, totals);
    if (done == n) return;
    const size_t m = std::min(kBlock, n - done);
    LoadDoubles(data + done * item, 1, m, dtype, values.data());
    AddMixed(values.data(), m, totals, counts);
    done += m;
  }
}

void AddElements(const std::byte* data, size_t n, ptrdiff_t stride, DType dtype,
                 FloatTotals* totals, NonFiniteCounts* counts) {
  if (stride == 1 && HasVectorKernel(dtype)) return AddContiguous(data, n, dtype, totals, counts);
  EachBlockOfDoubles(data, n, stride, dtype,
                     [&](const double* x, size_t m) { AddDoubles(x, m, totals, counts); });
}

// Squares of types narrower than float64 stay inside double's range.
bool SumsInRange(const FloatStats& s, DType dtype) {
  return s.count == 0 || RealOf(dtype) != DType::kF64 || !OutOfRange(s.sumsq);
}

// Sums of elements divided by a power of two near the largest magnitude, for when the plain ones
// left double's range.
void Rescale(const std::byte* data, size_t n, ptrdiff_t stride, DType dtype, FloatStats* stats) {
  const double largest = std::max(std::fabs(stats->finite_min), std::fabs(stats->finite_max));
  if (largest == 0) return;
  const double scale = std::ldexp(1.0, std::ilogb(largest));
  CompensatedSum sum, sumsq;
  EachBlockOfDoubles(data, n, stride, dtype, [&](const double* x, size_t m) {
    for (size_t i = 0; i < m; ++i) {
      if (!std::isfinite(x[i])) continue;
      const double scaled = x[i] / scale;
      sum.Add(scaled);
      sumsq.Add(scaled * scaled);
    }
  });
  stats->scale = scale;
  stats->sumsq = sumsq.value();
  if (!std::isfinite(stats->sum)) {
    stats->sum_scale = scale;
    stats->sum = sum.value();
  }
}

FloatStats Finish(size_t n, const FloatTotals& totals, const NonFiniteCounts& counts) {
  FloatStats s;
  s.count = n;
  s.nan = counts.nan;
  s.pos_inf = counts.pos_inf;
  s.neg_inf = counts.neg_inf;
  s.finite_min = totals.min;
  s.finite_max = totals.max;
  s.min = counts.neg_inf > 0
              ? -kInf
              : totals.min;  // +inf of "none finite" is right when there are only +inf
  s.max = counts.pos_inf > 0 ? kInf : totals.max;
  if (counts.neg_inf > 0) s.max = std::max(s.max, -kInf);
  s.sum = totals.sum.value();
  s.sumsq = totals.sumsq.value();
  return s;
}

}  // namespace

void FloatStats::Merge(const FloatStats& other) {
  if (other.count == 0) return;
  if (count == 0) {
    *this = other;
    return;
  }
  count += other.count;
  nan += other.nan;
  pos_inf += other.pos_inf;
  neg_inf += other.neg_inf;
  min = std::min(min, other.min);
  max = std::max(max, other.max);
  finite_min = std::min(finite_min, other.finite_min);
  finite_max = std::max(finite_max, other.finite_max);
  MergeScaled(&sumsq, &scale, other.sumsq, other.scale);
  const double plain = sum * sum_scale + other.sum * other.sum_scale;
  if (sum_scale == 1 && other.sum_scale == 1 && std::isfinite(plain)) {
    sum = plain;
    return;
  }
  double s =
      std::max(sum_scale, other.sum_scale);  // scaled sums are below 2n: no overflow among them
  if (s == 1) s = 0x1p64;
  sum = sum * (sum_scale / s) + other.sum * (other.sum_scale / s);
  sum_scale = s;
}

FloatStats FloatStatsOf(const std::byte* data, size_t n, ptrdiff_t stride, DType dtype) {
  FloatTotals totals;
  NonFiniteCounts counts;
  AddElements(data, n, stride, dtype, &totals, &counts);
  FloatStats s = Finish(n, totals, counts);
  if (!SumsInRange(s, dtype) && s.finite_min <= s.finite_max) Rescale(data, n, stride, dtype, &s);
  return s;
}

void FloatSums::Add(const std::byte* data, size_t n) {
  AddElements(data, n, 1, dtype_, &totals_, &counts_);
  count_ += n;
}

FloatStats FloatSums::Finish() const { return kernels::Finish(count_, totals_, counts_); }

FloatStats FloatSums::FinishBlock(const std::byte* data) const {
  FloatStats s = Finish();
  if (!SumsInRange(s, dtype_) && s.finite_min <= s.finite_max) Rescale(data, count_, 1, dtype_, &s);
  return s;
}

bool FloatSums::InRange() const { return SumsInRange(Finish(), dtype_); }

std::string_view ActiveTarget() { return TargetName(); }

}  // namespace msprobe::kernels
