#include "kernels/checksum.h"
#include "kernels/load.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/hash64.cc"
#include <hwy/foreach_target.h>  // before highway.h
// The next header is compiled once per target.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace msprobe::kernels {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using D64 = hn::ScalableTag<uint64_t>;
using V64 = hn::Vec<D64>;

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;
constexpr uint64_t kMul1 = 0xBF58476D1CE4E5B9;
constexpr uint64_t kMul2 = 0x94D049BB133111EB;

// Product modulo 2^64. Without a 64-bit multiply: three 32-bit ones.
HWY_INLINE V64 MulConstant(V64 x, uint64_t c) {
  const D64 d;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_EMU128
  return hn::Mul(x, hn::Set(d, c));
#else
  const hn::Repartition<uint32_t, D64> d32;
  const auto low = hn::BitCast(d32, hn::Set(d, c));  // even lanes: low half of c
  const auto high = hn::BitCast(d32, hn::Set(d, c >> 32));
  const auto x_low = hn::BitCast(d32, x);
  const auto x_high = hn::BitCast(d32, hn::ShiftRight<32>(x));
  const V64 cross = hn::Add(hn::MulEven(x_low, high), hn::MulEven(x_high, low));
  return hn::Add(hn::MulEven(x_low, low), hn::ShiftLeft<32>(cross));
#endif
}

HWY_INLINE V64 Mix(V64 z) {
  z = MulConstant(hn::Xor(z, hn::ShiftRight<30>(z)), kMul1);
  z = MulConstant(hn::Xor(z, hn::ShiftRight<27>(z)), kMul2);
  return hn::Xor(z, hn::ShiftRight<31>(z));
}

uint64_t MixOne(uint64_t z) {
  z = (z ^ (z >> 30)) * kMul1;
  z = (z ^ (z >> 27)) * kMul2;
  return z ^ (z >> 31);
}

HWY_INLINE V64 LoadWords(const uint64_t* p) { return hn::LoadU(D64(), p); }
HWY_INLINE V64 LoadWords(const uint32_t* p) {
  return hn::PromoteTo(D64(), hn::LoadU(hn::Rebind<uint32_t, D64>(), p));
}
HWY_INLINE V64 LoadWords(const uint16_t* p) {
  const hn::Rebind<uint32_t, D64> d32;
  return hn::PromoteTo(D64(), hn::PromoteTo(d32, hn::LoadU(hn::Rebind<uint16_t, D64>(), p)));
}
HWY_INLINE V64 LoadWords(const uint8_t* p) {
  const hn::Rebind<uint32_t, D64> d32;
  return hn::PromoteTo(D64(), hn::PromoteTo(d32, hn::LoadU(hn::Rebind<uint8_t, D64>(), p)));
}

// T of 1 to 8 bytes.
template <class T>
HWY_NOINLINE uint64_t HashItems(const std::byte* data, size_t n, uint64_t first) {
  const D64 d;
  const size_t lanes = hn::Lanes(d);
  const T* HWY_RESTRICT p = reinterpret_cast<const T*>(data);
  // Offsets (first + i + 1) * golden of the lanes, stepped by additions.
  V64 offset0 =
      hn::Add(MulConstant(hn::Iota(d, uint64_t{0}), kGolden), hn::Set(d, (first + 1) * kGolden));
  const V64 step = hn::Set(d, lanes * kGolden);
  V64 offset1 = hn::Add(offset0, step);
  const V64 step2 = hn::Add(step, step);
  V64 sum0 = hn::Zero(d), sum1 = sum0;
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    sum0 = hn::Add(sum0, Mix(hn::Add(LoadWords(p + i), offset0)));
    sum1 = hn::Add(sum1, Mix(hn::Add(LoadWords(p + i + lanes), offset1)));
    offset0 = hn::Add(offset0, step2);
    offset1 = hn::Add(offset1, step2);
  }
  // By hand: the library's sum of lanes adds signed numbers, which may not wrap.
  HWY_ALIGN uint64_t sums[HWY_MAX_BYTES / sizeof(uint64_t)];
  hn::Store(hn::Add(sum0, sum1), d, sums);
  uint64_t total = 0;
  for (size_t k = 0; k < lanes; ++k) total += sums[k];
  for (; i < n; ++i) total += MixOne(ReadAs<T>(data + i * sizeof(T)) + (first + i + 1) * kGolden);
  return total;
}

uint64_t HashPairs(const std::byte* data, size_t n, uint64_t first) {
  constexpr uint64_t kSecondHalf = uint64_t{1} << 63;
  uint64_t total = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint64_t index = first + i + 1;
    total += MixOne(ReadAs<uint64_t>(data + 16 * i) + index * kGolden);
    total += MixOne(ReadAs<uint64_t>(data + 16 * i + 8) + (index + kSecondHalf) * kGolden);
  }
  return total;
}

uint64_t Run(const std::byte* data, size_t n, size_t item_bytes, uint64_t first) {
  switch (item_bytes) {
    case 1:
      return HashItems<uint8_t>(data, n, first);
    case 2:
      return HashItems<uint16_t>(data, n, first);
    case 4:
      return HashItems<uint32_t>(data, n, first);
    case 8:
      return HashItems<uint64_t>(data, n, first);
    default:
      return HashPairs(data, n, first);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace msprobe::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msprobe::kernels {
HWY_EXPORT(Run);

uint64_t Hash64(const std::byte* data, size_t n, size_t item_bytes, uint64_t first) {
  return HWY_DYNAMIC_DISPATCH(Run)(data, n, item_bytes, first);
}
}  // namespace msprobe::kernels
#endif
