#include "tensor/dtype.h"

#include <array>
#include <cassert>
#include <utility>

namespace msprobe {
namespace {

struct Row {
  std::string_view torch_name;
  size_t size;
  DTypeKind kind;
  double unit_roundoff, largest, smallest_normal;
};

// Powers of two are hexadecimal literals. float8: OCP OFP8 specification 1.0 (E4M3: bias 7, largest
// 448; E5M2: bias 15, largest 57344), the FNUZ variants with bias 8 and 16 (Graphcore/AMD, as in
// torch's headers); e8m0 is a bare power of two of the OCP microscaling specification, whose
// neighbours of 1 are 0.5 and 2: no rounding unit is meaningful, 2^-1 is given.
constexpr std::array<Row, kNumDTypes> kRows = {{
    {"torch.bool", 1, DTypeKind::kBool, 0, 1, 0},
    {"torch.uint8", 1, DTypeKind::kUnsigned, 0, 255, 0},
    {"torch.int8", 1, DTypeKind::kSigned, 0, 127, 0},
    {"torch.uint16", 2, DTypeKind::kUnsigned, 0, 65535, 0},
    {"torch.int16", 2, DTypeKind::kSigned, 0, 32767, 0},
    {"torch.uint32", 4, DTypeKind::kUnsigned, 0, 4294967295.0, 0},
    {"torch.int32", 4, DTypeKind::kSigned, 0, 2147483647.0, 0},
    {"torch.uint64", 8, DTypeKind::kUnsigned, 0, 0x1p64, 0},
    {"torch.int64", 8, DTypeKind::kSigned, 0, 0x1p63, 0},
    {"torch.float16", 2, DTypeKind::kFloat, 0x1p-11, 65504, 0x1p-14},
    {"torch.bfloat16", 2, DTypeKind::kFloat, 0x1p-8, 0x1.FEp127, 0x1p-126},
    {"torch.float32", 4, DTypeKind::kFloat, 0x1p-24, 0x1.FFFFFEp127, 0x1p-126},
    {"torch.float64", 8, DTypeKind::kFloat, 0x1p-53, 0x1.FFFFFFFFFFFFFp1023, 0x1p-1022},
    {"torch.float8_e4m3fn", 1, DTypeKind::kFloat, 0x1p-4, 448, 0x1p-6},
    {"torch.float8_e4m3fnuz", 1, DTypeKind::kFloat, 0x1p-4, 240, 0x1p-7},
    {"torch.float8_e5m2", 1, DTypeKind::kFloat, 0x1p-3, 57344, 0x1p-14},
    {"torch.float8_e5m2fnuz", 1, DTypeKind::kFloat, 0x1p-3, 57344, 0x1p-15},
    {"torch.float8_e8m0fnu", 1, DTypeKind::kFloat, 0x1p-1, 0x1p127, 0x1p-127},
    {"torch.complex32", 4, DTypeKind::kComplex, 0x1p-11, 65504, 0x1p-14},
    {"torch.complex64", 8, DTypeKind::kComplex, 0x1p-24, 0x1.FFFFFEp127, 0x1p-126},
    {"torch.complex128", 16, DTypeKind::kComplex, 0x1p-53, 0x1.FFFFFFFFFFFFFp1023, 0x1p-1022},
}};

constexpr std::string_view kTorchPrefix = "torch.";

// torch's second names of types.
constexpr std::array<std::pair<std::string_view, DType>, 9> kAliases = {{
    {"half", DType::kF16},
    {"float", DType::kF32},
    {"double", DType::kF64},
    {"short", DType::kI16},
    {"int", DType::kI32},
    {"long", DType::kI64},
    {"cfloat", DType::kC64},
    {"cdouble", DType::kC128},
    {"chalf", DType::kC32},
}};

const Row& RowOf(DType t) {
  assert(static_cast<int>(t) < kNumDTypes);
  return kRows[static_cast<size_t>(t)];
}

}  // namespace

size_t ItemSize(DType t) { return RowOf(t).size; }
DTypeKind KindOf(DType t) { return RowOf(t).kind; }

DType RealOf(DType t) {
  switch (t) {
    case DType::kC32:
      return DType::kF16;
    case DType::kC64:
      return DType::kF32;
    case DType::kC128:
      return DType::kF64;
    default:
      return t;
  }
}

std::string_view TorchName(DType t) { return RowOf(t).torch_name; }
std::string_view ShortName(DType t) { return TorchName(t).substr(kTorchPrefix.size()); }

std::optional<DType> DTypeFromTorchName(std::string_view name) {
  if (name.starts_with(kTorchPrefix)) name.remove_prefix(kTorchPrefix.size());
  for (int i = 0; i < kNumDTypes; ++i) {
    const DType t = static_cast<DType>(i);
    if (name == ShortName(t)) return t;
  }
  for (const auto& [alias, t] : kAliases) {
    if (name == alias) return t;
  }
  return std::nullopt;
}

double UnitRoundoff(DType t) { return RowOf(t).unit_roundoff; }
double LargestFinite(DType t) { return RowOf(t).largest; }
double SmallestNormal(DType t) { return RowOf(t).smallest_normal; }

}  // namespace msprobe
