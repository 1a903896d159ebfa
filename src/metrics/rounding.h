// What rounding explains: the constants of compare's default rules (Q), one table. They were
// measured by tests/controls/calibrate.py over runs that differ in harmless ways only (order of
// summation, threads, kernels, layouts, decompositions); docs/compare.md has the table and the run.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "tensor/dtype.h"

namespace msprobe::metrics {

// Operators that round alike. A result is explained by its own rounding when, element by element,
//   |a - b| <= c * (u + u_acc * sqrt(K)) * (|b| + rms)
// with u the unit roundoff of the coarser dtype, u_acc that of the type in which sums are kept
// (float32 for 16- and 8-bit types, else u) and K the reduction length. What differs in the inputs
// may come out enlarged: `gain` times the largest deviation of an input is explained as well.
// Source: Higham & Mary 2019 (sums grow like sqrt(K)); gain: the largest factor seen.
struct RoundingFamily {
  std::string_view name;
  double c = 0;
  double gain = 0;
  std::span<const std::string_view> apis;  // empty: every other API, modules too
};
std::span<const RoundingFamily> RoundingFamilies();
// By the last part of an API's name (`linear`, `__add__`, `add_`); the general family when unknown.
const RoundingFamily& RoundingFamilyOf(std::string_view api);

// u of the sums behind a result of this type.
double AccumulationRoundoff(DType dtype);

// Deviations below it raise nothing anywhere in a network: rounding that has grown through layers.
double NoiseLevel(DType dtype);
// The noise level follows the largest deviation seen so far (kFrontFactor times it), but never
// beyond this.
double LargestNoise(DType dtype);
inline constexpr double kFrontFactor = 8;

}  // namespace msprobe::metrics
