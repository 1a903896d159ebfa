// The vector part of the sketch of culprit.md 5: signed sums of elements in k slots.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace msprobe::kernels {

// k slots. k is a multiple of 64, at most kMostSlots: then a block never shares a word of signs
// with its neighbours.
inline constexpr uint32_t kMostSlots = 4096;

// What of the elements counts as zero because a sum cannot carry it.
struct SketchLeftOut {
  uint64_t nan = 0, inf = 0;
  uint64_t huge = 0;  // finite, |x| >= 1e30
};

// Elements first, first + 1, … of a tensor in row-major order are added to `sums`, 2k of them:
//
//     block b = i div k, rot(b) = mix(b + seed + 77) mod k
//     sign(i) = bit (i mod 64) of mix((i div 64) xor seed * 0x5851F42D4C957F2D), set: minus
//     sums[i mod k + rot(b)] += sign(i) * x_i
//
// and slot j of the sketch is sums[j] + sums[k + j] (FoldSketch): slot(i) = (i + rot(b)) mod k. mix
// is one step of SplitMix64 from the state given (Steele, Lea & Flood 2014), modulo 2^64. Each sum
// takes its elements in ascending order of i, in double: the bits are the same on every instruction
// set, and for every cut of the elements into calls. `data` needs no alignment; contiguous elements
// of a bool, integer or real floating dtype (64-bit integers are rounded to double).
void AddToSketch(const std::byte* data, size_t n, DType dtype, uint64_t first, uint32_t k,
                 uint64_t seed, double* sums, SketchLeftOut* left_out);

// sums[j] += sums[k + j].
void FoldSketch(uint32_t k, double* sums);

// rot(0): the slot of element 0.
uint32_t FirstSlot(uint32_t k, uint64_t seed);

}  // namespace msprobe::kernels
