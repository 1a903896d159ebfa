#include "tensor/convert.h"

#include <cmath>
#include <limits>

namespace msprobe {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// sign * mantissa * 2^exponent; exact for the small integers used here. Integer to float and
// scaling keep subnormal results of the 8- and 16-bit types normal in float, so that flush-to-zero
// modes of the caller do not matter.
float Scaled(bool negative, uint32_t mantissa, int exponent) {
  const float magnitude = std::ldexp(static_cast<float>(mantissa), exponent);
  return negative ? -magnitude : magnitude;
}

// Fields of an 8-bit format with `mantissa_bits` below the exponent, no special codes looked at.
float DecodeFinite8(uint8_t bits, int mantissa_bits, int bias) {
  const uint32_t mantissa = bits & ((1u << mantissa_bits) - 1u);
  const int exponent = (bits & 0x7F) >> mantissa_bits;
  const bool negative = (bits & 0x80) != 0;
  if (exponent == 0) return Scaled(negative, mantissa, 1 - bias - mantissa_bits);
  return Scaled(negative, mantissa | (1u << mantissa_bits), exponent - bias - mantissa_bits);
}

}  // namespace

float HalfToFloat(uint16_t bits) {
  const bool negative = (bits & 0x8000) != 0;
  const uint32_t exponent = (bits >> 10) & 0x1Fu;
  const uint32_t mantissa = bits & 0x3FFu;
  if (exponent == 0) return Scaled(negative, mantissa, -24);
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t wide_exponent = exponent == 0x1F ? 0xFFu : exponent + (127 - 15);
  return std::bit_cast<float>(sign | (wide_exponent << 23) | (mantissa << 13));
}

uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {  // NaN: upper payload bits, made quiet
    return static_cast<uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
  }
  // 65520 = the middle between the largest half and 2^16 rounds to infinity.
  if (magnitude >= std::bit_cast<uint32_t>(65520.0f)) return static_cast<uint16_t>(sign | 0x7C00u);
  if (magnitude < std::bit_cast<uint32_t>(0x1p-14f)) {
    // Subnormal results are multiples of 2^-24: scaled to an integer (exact in double), rounded
    // half to even.
    const double steps =
        std::nearbyint(static_cast<double>(std::bit_cast<float>(magnitude)) * 0x1p24);
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(steps));
  }
  // Rebias, then round half to even by adding half a unit less one plus the lowest kept bit; a
  // carry runs into the exponent.
  const uint32_t rebased = magnitude - ((127u - 15u) << 23);
  const uint32_t rounded = (rebased + 0xFFFu + ((rebased >> 13) & 1u)) >> 13;
  return static_cast<uint16_t>(sign | rounded);
}

uint16_t FloatToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

float Float8E4M3FNToFloat(uint8_t bits) {
  if ((bits & 0x7F) == 0x7F) return kNan;  // no infinities
  return DecodeFinite8(bits, 3, 7);
}

float Float8E4M3FNUZToFloat(uint8_t bits) {
  if (bits == 0x80) return kNan;  // the place of -0
  return DecodeFinite8(bits, 3, 8);
}

float Float8E5M2ToFloat(uint8_t bits) {
  if ((bits & 0x7F) > 0x7C) return kNan;
  if ((bits & 0x7F) == 0x7C) {
    const float inf = std::numeric_limits<float>::infinity();
    return (bits & 0x80) != 0 ? -inf : inf;
  }
  return DecodeFinite8(bits, 2, 15);
}

float Float8E5M2FNUZToFloat(uint8_t bits) {
  if (bits == 0x80) return kNan;
  return DecodeFinite8(bits, 2, 16);
}

float Float8E8M0FNUToFloat(uint8_t bits) {
  if (bits == 0xFF) return kNan;
  return std::ldexp(1.0f, static_cast<int>(bits) - 127);
}

}  // namespace msprobe
