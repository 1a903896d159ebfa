// The six figures of a pair of tensors (compare.md 7.3, NEW; decisions on unrounded values, D8) and the sums behind them.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/pair_errors.h"
#include "tensor/dtype.h"

namespace msprobe::metrics {

enum class CosineCase : uint8_t { kValue, kOneElement, kBothZero, kTargetZero, kGoldenZero, kNan };

struct PairMetrics {
  CosineCase cosine_case = CosineCase::kValue;
  double cosine = 0;              // unrounded
  double euclidean = 0;
  double max_abs = 0;             // may be NaN
  double max_rel = 0;             // may be NaN
  double below_thousandth = 0;    // shares
  double below_five_thousandths = 0;
};

// compare.md 7.3: float32 when both are f16/bf16/f32/fp8, float64 otherwise.
kernels::WorkType WorkTypeOf(DType a, DType b);
PairMetrics MetricsOf(const kernels::PairErrors& errors);

// fmt12 of compare.md 7.3: x printed with 12 decimals and read back.
double Round12(double x);
// The cell of Cosine: Round12, and to 6 decimals above 0.9999.
double RoundCosine(double x);

}  // namespace msprobe::metrics
