// The six figures of a pair of tensors (compare.md 7.3, NEW; decisions on unrounded values, D8) and
// the sums behind them.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/pair_errors.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

namespace msprobe::metrics {

enum class CosineCase : uint8_t { kValue, kOneElement, kBothZero, kTargetZero, kGoldenZero, kNan };

struct PairMetrics {
  CosineCase cosine_case = CosineCase::kValue;
  double cosine = 0;  // unrounded
  double euclidean = 0;
  double max_abs = 0;           // may be NaN
  double max_rel = 0;           // may be NaN
  double below_thousandth = 0;  // shares
  double below_five_thousandths = 0;
};

// PairErrorsOf of two views with equal numbers of elements, any strides, without copies of whole
// tensors: elements are paired in row-major order. Both complex or neither.
kernels::PairErrors PairErrorsOf(const TensorView& a, const TensorView& b, kernels::WorkType work);

// compare.md 7.3: float32 when both are f16/bf16/f32/fp8, float64 otherwise.
kernels::WorkType WorkTypeOf(DType a, DType b);

// Decided on unrounded sums (D8). One element: kOneElement, cosine 0. Both sides all zero: cosine
// 1; one of them: NaN. The zero test is exact. A pair with class_mismatch > 0, or without elements:
// kNan, and every figure but the shares is NaN (no elements: these too). Figures of class_mismatch
// == 0 are those of all pairs, with NaN and equal infinities as zeros.
PairMetrics MetricsOf(const kernels::PairErrors& errors);

// fmt12 of compare.md 7.3: x printed with 12 decimals and read back. NaN and infinities stay.
double Round12(double x);
// The cell of Cosine: Round12, and to 6 decimals above 0.9999.
double RoundCosine(double x);

}  // namespace msprobe::metrics
