#include "metrics/pair_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>

namespace msprobe::metrics {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double Rounded(double x, int decimals) {
  if (!std::isfinite(x)) return x;
  fmt::memory_buffer text;
  fmt::format_to(std::back_inserter(text), "{:.{}f}", x, decimals);
  double value = x;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

void SetCosine(const kernels::PairErrors& e, PairMetrics* m) {
  if (e.count == 1) {
    m->cosine_case = CosineCase::kOneElement;
  } else if (e.a_sumsq == 0 && e.b_sumsq == 0) {
    m->cosine_case = CosineCase::kBothZero;
    m->cosine = 1;
  } else if (e.a_sumsq == 0 || e.b_sumsq == 0) {
    m->cosine_case = e.a_sumsq == 0 ? CosineCase::kTargetZero : CosineCase::kGoldenZero;
    m->cosine = kNan;
  } else {
    const double cosine = e.dot / (std::sqrt(e.a_sumsq) * std::sqrt(e.b_sumsq));
    m->cosine = std::clamp(cosine, -1.0, 1.0);  // rounding may step over by some 1e-16
  }
}

}  // namespace

kernels::WorkType WorkTypeOf(DType a, DType b) {
  const auto narrow = [](DType t) { return IsFloat(t) && t != DType::kF64; };
  return narrow(a) && narrow(b) ? kernels::WorkType::kF32 : kernels::WorkType::kF64;
}

kernels::PairErrors PairErrorsOf(const TensorView& a, const TensorView& b, kernels::WorkType work) {
  const auto n = static_cast<size_t>(a.num_elements());
  assert(a.num_elements() == b.num_elements());
  if (a.IsContiguous() && b.IsContiguous()) {
    return kernels::PairErrorsOf(a.data, a.dtype, b.data, b.dtype, n, work);
  }
  constexpr size_t kChunk = 1024;
  constexpr size_t kMaxItem = 16;
  std::array<std::byte, kChunk * kMaxItem> a_chunk, b_chunk;
  ElementCursor a_cursor(a), b_cursor(b);
  kernels::PairErrors total;
  for (size_t i = 0; i < n; i += kChunk) {
    const size_t m = std::min(kChunk, n - i);
    a_cursor.Next(m, a_chunk.data());
    b_cursor.Next(m, b_chunk.data());
    total.Merge(kernels::PairErrorsOf(a_chunk.data(), a.dtype, b_chunk.data(), b.dtype, m, work));
  }
  return total;
}

PairMetrics MetricsOf(const kernels::PairErrors& e) {
  PairMetrics m;
  const auto n = static_cast<double>(e.count);
  m.below_thousandth = e.count > 0 ? static_cast<double>(e.below_thousandth) / n : kNan;
  m.below_five_thousandths = e.count > 0 ? static_cast<double>(e.below_five_thousandths) / n : kNan;
  if (e.count == 0 || e.class_mismatch > 0) {
    m.cosine_case = CosineCase::kNan;
    m.cosine = m.euclidean = m.max_abs = m.max_rel = kNan;
    return m;
  }
  m.euclidean = e.scale * std::sqrt(e.diff_sumsq);
  m.max_abs = e.max_abs;
  m.max_rel = e.max_rel;
  SetCosine(e, &m);
  return m;
}

double Round12(double x) { return Rounded(x, 12); }

double RoundCosine(double x) {
  const double rounded = Round12(x);
  return rounded > 0.9999 ? Rounded(rounded, 6) : rounded;
}

}  // namespace msprobe::metrics
