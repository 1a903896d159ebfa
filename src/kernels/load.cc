#include "kernels/load.h"

#include <array>
#include <cassert>

#include "tensor/convert.h"

namespace msprobe::kernels {
namespace {

using Float8Table = std::array<float, 256>;

template <float (*kConvert)(uint8_t)>
const Float8Table& TableOf() {
  static const Float8Table table = [] {
    Float8Table t;
    for (size_t i = 0; i < t.size(); ++i) t[i] = kConvert(static_cast<uint8_t>(i));
    return t;
  }();
  return table;
}

const Float8Table& Float8Values(DType dtype) {
  switch (dtype) {
    case DType::kF8E4M3FN:
      return TableOf<Float8E4M3FNToFloat>();
    case DType::kF8E4M3FNUZ:
      return TableOf<Float8E4M3FNUZToFloat>();
    case DType::kF8E5M2:
      return TableOf<Float8E5M2ToFloat>();
    case DType::kF8E5M2FNUZ:
      return TableOf<Float8E5M2FNUZToFloat>();
    default:
      assert(dtype == DType::kF8E8M0FNU);
      return TableOf<Float8E8M0FNUToFloat>();
  }
}

// out[i] = convert(element i as T).
template <class T, class Out, class F>
void Each(const std::byte* data, ptrdiff_t stride, size_t n, Out* out, const F& convert) {
  if (stride == 1) {  // the step a constant: the compiler makes vectors of it
    for (size_t i = 0; i < n; ++i)
      out[i] = static_cast<Out>(convert(ReadAs<T>(data + i * sizeof(T))));
    return;
  }
  const ptrdiff_t step = stride * static_cast<ptrdiff_t>(sizeof(T));
  for (size_t i = 0; i < n; ++i) {
    out[i] = static_cast<Out>(convert(ReadAs<T>(data)));
    data += step;
  }
}

template <class T, class Out>
void EachPlain(const std::byte* data, ptrdiff_t stride, size_t n, Out* out) {
  Each<T>(data, stride, n, out, [](T x) { return x; });
}

template <class Out>
void LoadFloating(const std::byte* data, ptrdiff_t stride, size_t n, DType dtype, Out* out) {
  switch (dtype) {
    case DType::kF16:
      return Each<uint16_t>(data, stride, n, out, HalfToFloat);
    case DType::kBF16:
      return Each<uint16_t>(data, stride, n, out, BFloat16ToFloat);
    case DType::kF32:
      return EachPlain<float>(data, stride, n, out);
    default: {
      const Float8Table& table = Float8Values(dtype);
      return Each<uint8_t>(data, stride, n, out, [&table](uint8_t x) { return table[x]; });
    }
  }
}

template <size_t kItem>
void Pack(const std::byte* data, ptrdiff_t stride, size_t n, std::byte* out) {
  const ptrdiff_t step = stride * static_cast<ptrdiff_t>(kItem);
  for (size_t i = 0; i < n; ++i) {
    std::memcpy(out, data, kItem);
    data += step;
    out += kItem;
  }
}

}  // namespace

void LoadFloats(const std::byte* data, ptrdiff_t stride, size_t n, DType dtype, float* out) {
  LoadFloating(data, stride, n, dtype, out);
}

void LoadDoubles(const std::byte* data, ptrdiff_t stride, size_t n, DType dtype, double* out) {
  switch (dtype) {
    case DType::kBool:
      return Each<uint8_t>(data, stride, n, out, [](uint8_t x) { return x != 0; });
    case DType::kU8:
      return EachPlain<uint8_t>(data, stride, n, out);
    case DType::kI8:
      return EachPlain<int8_t>(data, stride, n, out);
    case DType::kU16:
      return EachPlain<uint16_t>(data, stride, n, out);
    case DType::kI16:
      return EachPlain<int16_t>(data, stride, n, out);
    case DType::kU32:
      return EachPlain<uint32_t>(data, stride, n, out);
    case DType::kI32:
      return EachPlain<int32_t>(data, stride, n, out);
    case DType::kU64:
      return EachPlain<uint64_t>(data, stride, n, out);
    case DType::kI64:
      return EachPlain<int64_t>(data, stride, n, out);
    case DType::kF64:
      return EachPlain<double>(data, stride, n, out);
    default:
      return LoadFloating(data, stride, n, dtype, out);
  }
}

void LoadComplex(const std::byte* data, ptrdiff_t stride, size_t n, DType dtype, double* out) {
  assert(IsComplex(dtype));
  const DType part = RealOf(dtype);
  const ptrdiff_t step = stride * static_cast<ptrdiff_t>(ItemSize(dtype));
  for (size_t i = 0; i < n; ++i) {
    LoadDoubles(data, 1, 2, part, out + 2 * i);
    data += step;
  }
}

void PackItems(const std::byte* data, ptrdiff_t stride, size_t n, size_t item, std::byte* out) {
  switch (item) {
    case 1:
      return Pack<1>(data, stride, n, out);
    case 2:
      return Pack<2>(data, stride, n, out);
    case 4:
      return Pack<4>(data, stride, n, out);
    case 8:
      return Pack<8>(data, stride, n, out);
    default:
      assert(item == 16);
      return Pack<16>(data, stride, n, out);
  }
}

}  // namespace msprobe::kernels
