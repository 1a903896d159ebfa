// Scalar conversions of the small floating types, exact, one element at a time. Vector code lives
// in kernels.
#pragma once

#include <bit>
#include <cstdint>

namespace msprobe {

// IEEE 754 binary16.
float HalfToFloat(uint16_t bits);
uint16_t FloatToHalf(float value);  // round to nearest even
// bfloat16: the upper 16 bits of binary32.
inline float BFloat16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
uint16_t FloatToBFloat16(float value);  // round to nearest even, NaN stays NaN

// OCP 8-bit floating point and the FNUZ variants, as torch stores them.
float Float8E4M3FNToFloat(uint8_t bits);
float Float8E4M3FNUZToFloat(uint8_t bits);
float Float8E5M2ToFloat(uint8_t bits);
float Float8E5M2FNUZToFloat(uint8_t bits);
float Float8E8M0FNUToFloat(uint8_t bits);

}  // namespace msprobe
