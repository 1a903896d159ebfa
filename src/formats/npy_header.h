// The header of .npy: versions 1 to 3.
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

namespace msprobe::formats {

inline constexpr std::string_view kNpyMagic("\x93NUMPY", 6);
inline constexpr size_t kNpyMaxHeader = 64u << 10;

struct NpyHeader {
  DType dtype = DType::kF32;
  bool swapped = false;  // big-endian elements
  bool fortran_order = false;
  Shape shape;
  uint64_t data_offset = 0;  // from the start of the file
};

// `start`: the first min(size, kNpyMaxHeader + 12) bytes. Errors: kTruncated, kMalformed,
// kUnsupported (element type), kTooLarge; the offset is that in the file.
Result<NpyHeader> ParseNpyHeader(Bytes start);

// The descr of NumPy, "<f4"; empty where NumPy has no such type.
std::string_view NpyDescr(DType dtype);

}  // namespace msprobe::formats
