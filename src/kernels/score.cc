#include "kernels/score.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tensor/convert.h"

namespace msprobe::kernels {
namespace {

template <DType kType>
double Load(const std::byte* data, size_t i) {
  if constexpr (kType == DType::kF64) {
    double v;
    std::memcpy(&v, data + i * sizeof v, sizeof v);
    return v;
  } else if constexpr (kType == DType::kF32) {
    float v;
    std::memcpy(&v, data + i * sizeof v, sizeof v);
    return static_cast<double>(v);
  } else {
    uint16_t v;
    std::memcpy(&v, data + i * sizeof v, sizeof v);
    return static_cast<double>(kType == DType::kF16 ? HalfToFloat(v) : BFloat16ToFloat(v));
  }
}

using LoadFn = double (*)(const std::byte*, size_t);

LoadFn LoaderOf(DType t) {
  switch (t) {
    case DType::kF64:
      return &Load<DType::kF64>;
    case DType::kF16:
      return &Load<DType::kF16>;
    case DType::kBF16:
      return &Load<DType::kBF16>;
    default:
      return &Load<DType::kF32>;
  }
}

// Errors of the native result over a row: their root mean square; NaN classes are left out.
double NativeRms(const ScoreInput& in, LoadFn native, size_t begin, size_t end) {
  double sum = 0;
  for (size_t i = begin; i < end; ++i) {
    const double d = native(in.native, i) - in.reference[i];
    if (std::isfinite(d)) sum += d * d;
  }
  return std::sqrt(sum / static_cast<double>(end - begin));
}

double ConditionRms(const ScoreInput& in, size_t begin, size_t end) {
  double sum = 0;
  for (size_t i = begin; i < end; ++i) {
    if (std::isfinite(in.condition[i])) sum += in.condition[i] * in.condition[i];
  }
  return std::sqrt(sum / static_cast<double>(end - begin));
}

bool SameClass(double y, double r, double largest) {
  if (std::isnan(y) || std::isnan(r)) return std::isnan(y) && std::isnan(r);
  if (std::isinf(y)) return (y > 0) == (r > 0) && std::abs(r) > largest;
  return !std::isinf(r);
}

}  // namespace

Score ScoreOf(const ScoreInput& in) {
  Score out;
  const LoadFn load = LoaderOf(in.dtype);
  const LoadFn native = LoaderOf(in.native_dtype);
  const double u = UnitRoundoff(in.dtype);
  const double largest = LargestFinite(in.dtype);
  const double tiny = SmallestNormal(in.dtype) * 2 * u;  // distance of subnormal numbers
  const size_t row = std::max<size_t>(in.row, 1);
  double squares = 0;
  double errors = 0;
  double norm = 0;
  size_t counted = 0;
  for (size_t begin = 0; begin < in.n; begin += row) {
    const size_t end = std::min(in.n, begin + row);
    const double least_n = in.native != nullptr ? NativeRms(in, native, begin, end) : 0;
    const double least_a = in.condition != nullptr ? ConditionRms(in, begin, end) / 2 : 0;
    for (size_t i = begin; i < end; ++i) {
      const double y = load(in.y, i);
      const double r = in.reference[i];
      double n = 0;
      if (in.native != nullptr) {
        const double v = native(in.native, i);
        if (!SameClass(v, r, largest)) continue;
        n = std::isfinite(v) ? std::max(std::abs(v - r), least_n) : 0;
      }
      if (!SameClass(y, r, largest)) {
        if (out.classes++ == 0) out.worst = i;
        continue;
      }
      if (!std::isfinite(y) || !std::isfinite(r)) continue;
      double a = 0;
      if (in.condition != nullptr)
        a = std::isfinite(in.condition[i]) ? std::max(in.condition[i], least_a) : largest;
      const double e = std::abs(y - r);
      const double ratio = e / (u * std::abs(r) + in.kappa * in.u_acc * a + 2 * n + tiny);
      if (ratio > out.score) {
        out.score = ratio;
        if (out.classes == 0) out.worst = i;
      }
      squares += ratio * ratio;
      errors += e * e;
      norm += r * r;
      ++counted;
    }
  }
  if (counted > 0) out.rms = std::sqrt(squares / static_cast<double>(counted));
  out.introduced = std::sqrt(errors);
  out.norm = std::sqrt(norm);
  if (out.classes > 0) out.score = std::numeric_limits<double>::infinity();
  return out;
}

}  // namespace msprobe::kernels
