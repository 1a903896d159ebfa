// The rounding model of a replayed call and what its score means (culprit.md 3, 4, 7).
//
//   E_i = u_out |r_i| + kappa u_acc A_i + 2 N_i + tiny
//
// with r the call in float64, A its Monte Carlo condition number (Parker 1997; Denis et al. 2016)
// and N the error of the same call in its own type on the CPU. kappa counts how many roundings of
// u_acc accumulate: sequential sums grow like sqrt(n) (Higham & Mary 2019), blocked ones less
// (Blanchard, Higham & Mary 2020).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace msprobe::culprit {

// Constants that --learn-floor refits. Calibrated on CPU kernels (culprit.md 4, 7).
struct ScoreModel {
  double limit = 4;        // T: scores up to it are rounding
  double contrast = 4;     // the target's score must exceed that of the golden side this many times
  double tail = 0.0036;    // p(s) = tail * s^-exponent for s > 1: share of clean scores above 1
  double exponent = 3.47;  // Hill's (1975) index of that tail
  double q = 0.001;        // level of Benjamini & Hochberg (1995)
  uint64_t learned = 0;    // entries of clean runs that tail, exponent and limit come from; 0: CPU
};

// A replayed entry counts as clean with this probability. 1 for s <= 1 and for no number; 0 for
// infinity.
double PValue(const ScoreModel& model, double score);

// Which of the p-values are discoveries at level model.q (Benjamini & Hochberg 1995; it holds under
// positive dependence, Benjamini & Yekutieli 2001), of `tests` tests: p-values not listed are 1.
// Returns the largest p that is one; negative when none is.
double DiscoveryLimit(const ScoreModel& model, std::vector<double> p_values, size_t tests);

// kappa of culprit.md 4. `api`: the last part of the name. `n`: length of the sums: for products
// sqrt(|a| |b| / |y|) elements, for others input elements per output element; at least 1.
// `sixteen`: the result is of a 16-bit type (prefix sums and transposed convolutions have 8 kappa).
double Kappa(std::string_view api, double n, bool sixteen);
// 8 (1 + sqrt(n) / 2): a parameter's gradient as the sum over its uses.
double ParameterGradKappa(double n);

// Is the length of sums that of a product of two operands?
bool IsProduct(std::string_view api);
// Does autocast run the call in its 16-bit type?
bool IsLowPrecision(std::string_view api);

// Rules 13: relative errors grow at most this much from inputs to outputs.
struct Growth {
  double gain = 30;
  double own = 2e-6;     // u: rounding of the call itself, relative
  bool cancels = false;  // sums, products, norms: also measured against the inputs' size
  bool powers = false;   // of e: absolute errors of the input are relative ones of the result
  bool kinked =
      false;  // derivatives jump: the gradient deviates by sqrt(d) where the inputs do by d
  bool bounded = false;  // |derivative| <= about 1: gradients pass in their own size
};
Growth GrowthOf(std::string_view api, bool sixteen);

}  // namespace msprobe::culprit
