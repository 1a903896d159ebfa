// What is done to recorded tensors before they are compared (compare.md 17): outputs are cleared
// behind their valid length, tensors are multiplied by matrices.
#pragma once

#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"

namespace msprobe::config {

// One product. The blocks of the file come in the order right_matmul, left_matmul,
// left_right_matmul.
struct MatrixProduct {
  enum class Side : uint8_t { kRight, kLeft };  // X·M, M·X
  Side side = Side::kRight;
  bool golden = false;                  // which dump's tensors
  std::string matrix;                   // .pt or .npy file; relative to the working directory
  std::vector<std::string> data_names;  // files of dump_tensor_data
};

// Outputs of calls whose name holds `api` mean nothing behind the sum of the integer tensor in
// keyword argument `keyword` (17.1).
struct ValidLength {
  std::string api, keyword;
};
// What holds without a file, on both sides (D22).
std::vector<ValidLength> DefaultValidLengths();

struct PostprocessConfig {
  std::vector<MatrixProduct> products;
  std::vector<ValidLength> target_lengths = DefaultValidLengths();
  std::vector<ValidLength> golden_lengths = DefaultValidLengths();
};

// Blocks right_matmul, left_matmul, left_right_matmul, and ours (D33): valid_length with the maps
// `target` and `golden` of API to keyword, which stand in for the defaults of their side. Unknown
// keys are warned about, or refused when they are nearly a known one; empty blocks and maps are
// off. Errors with line, column and key for values of another kind.
Result<PostprocessConfig> ReadPostprocessConfig(const std::string& path, LogSink& log);

}  // namespace msprobe::config
