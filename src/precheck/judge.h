// The provisional verdict of one output: which metrics are shown, and pass, warning or error.
#pragma once

#include <string>
#include <string_view>

#include "precheck/details.h"
#include "tensor/view.h"

namespace msprobe::precheck {

// What is known of one output pair. Dtype and shape texts are those of the recorded objects
// ("torch.bfloat16", "(2, 3)"); the views are contiguous copies on the host.
struct OutputPair {
  std::string_view api;  // bare name: "conv2d"
  std::string_view bench_dtype, device_dtype;
  TensorView bench, device;
  bool float8_input = false;
  bool gradient = false;  // 16-bit: errors are judged at the magnitude of the whole gradient, too
  SmallValues small_values = SmallValues::kOriginal;
};

// Fills cells, status and message of `row` (its name is the caller's). Never fails: what cannot be
// compared is an error or SKIP row with the reason. Rules: docs/precheck-rules.md; shapes first,
// then dtype classes, emptiness, exact or floating path. NaN and infinity must agree by position
// and sign after rounding the reference to the device's dtype: agreeing ones are left out of the
// decision, others are an error. bfloat16 is judged at 2^-6 and 2^-8 where other 16-bit floats are
// at 1 % and 0.1 %.
void JudgeOutput(const OutputPair& pair, Standard standard, DetailsRow& row);

// Dropout is judged by its zeros: |share of zeros here - there| < 0.1; fewer than 100 elements
// pass.
void JudgeDropout(const OutputPair& pair, DetailsRow& row);

// "(2, 3)", "(4,)", "()".
std::string TupleText(std::span<const int64_t> shape);

}  // namespace msprobe::precheck
