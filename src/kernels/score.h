// How far a result is from its reference, measured by the error that rounding explains at every
// element (culprit.md 3): one pass instead of ten in tensors.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace msprobe::kernels {

// E_i = u_out |r_i| + kappa u_acc A_i + 2 N_i + tiny, with r the reference, A the condition and
// N_i = max(|native_i - r_i|, its root mean square over the row). A is raised to at least half its
// root mean square over the row.
struct ScoreInput {
  const std::byte* y = nullptr;       // n elements of `dtype`, contiguous
  DType dtype = DType::kF32;          // f16, bf16, f32 or f64
  const double* reference = nullptr;  // n
  const std::byte* native = nullptr;  // n elements of `native_dtype`; null: N is 0
  DType native_dtype = DType::kF32;
  const double* condition = nullptr;  // n; null: A is 0
  size_t n = 0, row = 1;              // row: length of the last axis, divides n
  double kappa = 1, u_acc = 0;
};

struct Score {
  double score = 0;       // largest |y - r| / E; infinity when value classes differ
  double rms = 0;         // root mean square of the ratio over finite elements
  double introduced = 0;  // |y - r|, Euclidean, over finite elements
  double norm = 0;        // |r|
  uint64_t classes = 0;   // elements where NaN, +inf or -inf stand against another class
  uint64_t worst = 0;     // index of the largest ratio
};

// NaN against NaN and infinities of one sign agree, as does an infinite y where |r| is beyond the
// largest number of its type. Elements whose native result is of another class than r are left out.
Score ScoreOf(const ScoreInput& input);

}  // namespace msprobe::kernels
