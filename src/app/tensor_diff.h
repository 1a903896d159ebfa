// Two stored tensors side by side: where they differ, how much, and along which axis.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

namespace msprobe::app {

struct DiffLimits {
  uint64_t first = 5;  // places that are listed
  double above = 0;    // differences up to it count as none
};

// One element of both sides; complex ones by magnitude.
struct DiffPlace {
  int64_t index = 0;                              // row-major
  double target = 0, golden = 0, difference = 0;  // |target - golden|; infinity where only one is
                                                  // NaN, or infinities disagree
};

struct TensorDiff {
  DType target_dtype = DType::kF32, golden_dtype = DType::kF32;
  Shape shape;  // of both
  int64_t elements = 0;
  int64_t different = 0;      // beyond DiffLimits::above
  int64_t class_differs = 0;  // of those: NaN or infinity on one side only, or of other sign
  double relative_l2 = 0;     // |t - g| / |g| over pairs of finite elements; infinity when g is 0
  double cosine = 0;          // the same pairs; NaN when a side is zero
  double bias = 0;            // mean of t - g, the same pairs; 0 for complex
  std::vector<DiffPlace> first;    // in row-major order
  std::vector<DiffPlace> worst;    // largest difference first
  std::map<int, int64_t> decades;  // floor(log10 |t - g|) to elements, differences of finite ones
  // By axis and index: share of the squared difference of finite elements. Axes of one index or of
  // more than 65,536 have an empty list; without any difference all are zero.
  std::vector<std::vector<double>> shares;
};

// Paths of tensor files. Errors: those of reading; kMismatch for different shapes.
Result<TensorDiff> DiffTensors(const std::string& target, const std::string& golden,
                               const DiffLimits& limits);

// "[1, 3]" of a row-major index.
std::string IndexText(int64_t index, const Shape& shape);

// The axis whose error is gathered most in one index (its share times the extent), or -1.
int SharpestAxis(const TensorDiff& diff);

}  // namespace msprobe::app
