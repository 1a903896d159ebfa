// What the default rule set sees beyond the published steps: errors that the dtype cannot explain
// though they are small in absolute terms, a lone wrong element, lost subnormals. Findings only
// worsen a status, but for Q0, and name themselves in the message.
#pragma once

#include "precheck/details.h"
#include "precheck/judge.h"

namespace msprobe::precheck {

// With u the unit roundoff of the device's dtype and s the larger of rms(reference) and `scale`,
// the error of an element is counted in units of u (|b| + s).
//
// Q0, pass: the status comes from cosine or shares of relative errors, the output is a sum
// (IsSummed, or a gradient), and no error is above 16 (float32) or 4 (16-bit) units: small elements
// of a sum are what cancellation left, and rounding at the scale of its terms explains them.
//
// Q1, error: the largest of them is not explained, that is above 256 + 16 sqrt(terms) for float32,
// 32 + 2 sqrt(terms) for 16-bit types. With a baseline (the same call on the CPU in the recorded
// dtypes): above eight times the baseline's and above 16 (float32) or 4 (16-bit) units.
//
// Q2, error: their root mean square is above 2.5 times the baseline's and above 8 (float32) or 0.5
// (16-bit) units.
//
// Q3, warning: results that are subnormal in the reference are zero here, and not in the baseline.
//
// float64, 8-bit floats, exact types and rows without elements are left alone. The limits without a
// baseline were set by replaying clean dumps (docs/precheck-rules.md); functions whose result
// amplifies rounding (solve, inverse, …) are judged with a baseline only.
struct QContext {
  double scale = 0;  // rms of the largest floating input, or of the gradients that come in
  double terms = 1;  // input elements per output element, about the length of a sum
  bool amplifies = false;
  const TensorView* baseline = nullptr;  // same shape and dtype as the device's output
};
void ApplyQRules(const OutputPair& pair, const QContext& context, DetailsRow& row);

}  // namespace msprobe::precheck
