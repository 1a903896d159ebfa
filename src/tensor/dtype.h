// Element types of tensors: names, sizes, kinds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace msprobe {

enum class DType : uint8_t {
  kBool,
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kU64,
  kI64,
  kF16,
  kBF16,
  kF32,
  kF64,
  kF8E4M3FN,
  kF8E4M3FNUZ,
  kF8E5M2,
  kF8E5M2FNUZ,
  kF8E8M0FNU,
  kC32,
  kC64,
  kC128,  // complex of two f16, f32, f64
};
inline constexpr int kNumDTypes = static_cast<int>(DType::kC128) + 1;

enum class DTypeKind : uint8_t { kBool, kUnsigned, kSigned, kFloat, kComplex };

size_t ItemSize(DType t);  // bytes
DTypeKind KindOf(DType t);
inline bool IsFloat(DType t) { return KindOf(t) == DTypeKind::kFloat; }
inline bool IsComplex(DType t) { return KindOf(t) == DTypeKind::kComplex; }
inline bool IsExact(DType t) { return KindOf(t) < DTypeKind::kFloat; }  // bool and integers
inline bool IsFloat8(DType t) { return t >= DType::kF8E4M3FN && t <= DType::kF8E8M0FNU; }
DType RealOf(DType t);  // kC64 -> kF32; itself otherwise

std::string_view ShortName(DType t);  // "float32", "bfloat16", "float8_e4m3fn", "complex64", "bool"
std::string_view TorchName(DType t);  // "torch.float32"
// Accepts "torch.float32", "float32", torch's aliases (torch.half, float, double, short, int, long,
// cfloat, cdouble, chalf, bool) and safetensors' tags are NOT accepted here.
std::optional<DType> DTypeFromTorchName(std::string_view name);

// Unit roundoff u of the type (half the distance of 1 to the next number): 2^-53 f64, 2^-24 f32,
// 2^-11 f16, 2^-8 bf16, 2^-4 e4m3, 2^-3 e5m2; 0 for exact types; of the real part for complex.
double UnitRoundoff(DType t);
double LargestFinite(DType t);   // as double; for integers the largest value
double SmallestNormal(DType t);  // 0 for exact types

}  // namespace msprobe
