// Checksums of element bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace msprobe::kernels {

// CRC-32 of zlib; `seed` is the value so far (0 at the start), so parts chain.
uint32_t Crc32(uint32_t seed, const std::byte* data, size_t bytes);

// XOR of little-endian 64-bit words, the last one zero-padded. Parts chain by ^ when all but the
// last are multiples of 8 bytes.
uint64_t Xor64(const std::byte* data, size_t bytes);

// Position-aware, layout-independent hash of elements (decisions.md 19, culprit.md 5): sum modulo
// 2^64 over i of Mix(bits(x_i) + (first + i + 1) * 0x9E3779B97F4A7C15), with Mix the finaliser of
// SplitMix64 (Steele, Lea & Flood 2014) and bits the element zero-extended to 64 bits (16-byte
// elements: both halves, second at index + 2^63). Parts add up in any order.
uint64_t Hash64(const std::byte* data, size_t n, size_t item_bytes, uint64_t first);

}  // namespace msprobe::kernels
