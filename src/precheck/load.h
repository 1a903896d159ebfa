// Floating elements in whatever dtype, as float or double.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "tensor/convert.h"
#include "tensor/view.h"

namespace msprobe::precheck {

// Elements [first, first + n) of a contiguous floating view as T.
template <class T>
void LoadFloats(const TensorView& view, size_t first, size_t n, T* out) {
  const std::byte* p = view.data + first * ItemSize(view.dtype);
  const auto convert = [&]<class S>(auto&& to_float, S) {
    for (size_t i = 0; i < n; ++i) {
      S bits;
      std::memcpy(&bits, p + i * sizeof(S), sizeof(S));
      out[i] = static_cast<T>(to_float(bits));
    }
  };
  switch (view.dtype) {
    case DType::kF64:
      convert([](double x) { return x; }, double{});
      return;
    case DType::kF32:
      convert([](float x) { return x; }, float{});
      return;
    case DType::kF16:
      convert(HalfToFloat, uint16_t{});
      return;
    case DType::kBF16:
      convert(BFloat16ToFloat, uint16_t{});
      return;
    case DType::kF8E4M3FN:
      convert(Float8E4M3FNToFloat, uint8_t{});
      return;
    case DType::kF8E4M3FNUZ:
      convert(Float8E4M3FNUZToFloat, uint8_t{});
      return;
    case DType::kF8E5M2:
      convert(Float8E5M2ToFloat, uint8_t{});
      return;
    case DType::kF8E5M2FNUZ:
      convert(Float8E5M2FNUZToFloat, uint8_t{});
      return;
    case DType::kF8E8M0FNU:
      convert(Float8E8M0FNUToFloat, uint8_t{});
      return;
    default:
      std::fill_n(out, n, std::numeric_limits<T>::quiet_NaN());
      return;
  }
}

}  // namespace msprobe::precheck
