// What is done to recorded tensors before they are compared: multiplication by matrices
// (compare.md 17.2).
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

struct PostprocessConfig {
  std::vector<MatrixProduct> products;
  bool empty() const { return products.empty(); }
};

// Unknown keys are warned about, or refused when they are nearly a known one; empty blocks and maps
// are off. Errors with line, column and key for values of another kind.
Result<PostprocessConfig> ReadPostprocessConfig(const std::string& path, LogSink& log);

}  // namespace msprobe::config
