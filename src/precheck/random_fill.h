// Random inputs that depend on nothing but (seed, name of the call, argument, element): a
// counter-based generator, so that every device, worker, filtered, split or resumed run sees the
// same bits.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "tensor/dtype.h"

namespace msprobe::precheck {

// Key of a tensor's stream. `path` is the place of the tensor in the call: "input_args.0",
// "input.1".
uint64_t StreamKey(uint64_t seed, std::string_view api, std::string_view path);

// Word `index` of the stream: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers:
// as easy as 1, 2, 3", SC11) of the counter index / 2, its lower or upper half.
uint64_t StreamWord(uint64_t key, uint64_t index);

// `out` holds `count` elements of `dtype`, contiguous. Floats: uniform in [low, high], computed in
// double and rounded to the dtype; low <= high, finite. Complex: both parts so. False for dtypes
// that are not floating or complex.
bool FillUniform(uint64_t key, DType dtype, double low, double high, uint64_t count,
                 std::byte* out);

// Integers and bool: uniform in low … low + span, both ends included, modulo the width of the
// dtype; span = 2^64-1 is the whole range. Bool: whether the number drawn is above 0. False for
// other dtypes.
bool FillIntegers(uint64_t key, DType dtype, int64_t low, uint64_t span, uint64_t count,
                  std::byte* out);

}  // namespace msprobe::precheck
