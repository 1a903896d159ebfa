// Strided elements of a file in row-major order.
#pragma once

#include <functional>

#include "formats/tensor_file.h"

namespace msprobe::formats {

// Fills `out` from byte `offset` of the file or member on.
using ReadBytes = std::function<Status(uint64_t offset, std::span<std::byte> out)>;

// Reads every element of `tensor` once, walking the storage in its own order (so that transposed
// tensors are read forwards) through a window of at most 1 MiB, and puts it at its row-major place
// in `out`.
Status Gather(const StoredTensor& tensor, const ReadBytes& read, std::byte* out);

// Reverses the bytes of `n` elements; of both halves for complex types.
void SwapBytes(DType dtype, int64_t n, std::byte* data);

}  // namespace msprobe::formats
