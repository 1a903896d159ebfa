// Elements of any type as float or double in small buffers: the road of everything that has no
// kernel of its own (float8, mixed pairs, strided runs, blocks with non-finite elements).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tensor/dtype.h"

namespace msprobe::kernels {

// Elements per block of every blocked loop of this folder. Pads 4 KiB of float, 8 KiB of double: a
// pair of blocks stays in L1.
inline constexpr size_t kBlock = 1024;

// Unaligned read of one T.
template <class T>
T ReadAs(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

// out[i] = value of element i of a bool, integer or real floating dtype, `stride` elements apart.
// 64-bit integers are rounded; the others are exact. bool: any non-zero byte is 1.
void LoadDoubles(const std::byte* data, ptrdiff_t stride, size_t n, DType dtype, double* out);

// The same in float for the types that float holds exactly: float16, bfloat16, float32 and float8.
void LoadFloats(const std::byte* data, ptrdiff_t stride, size_t n, DType dtype, float* out);

// Real and imaginary parts, interleaved: 2n doubles. Complex dtypes only.
void LoadComplex(const std::byte* data, ptrdiff_t stride, size_t n, DType dtype, double* out);

// n items of `item` bytes (1, 2, 4, 8 or 16), `stride` items apart, packed into out.
void PackItems(const std::byte* data, ptrdiff_t stride, size_t n, size_t item, std::byte* out);

}  // namespace msprobe::kernels
