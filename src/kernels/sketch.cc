#include "kernels/sketch.h"

#include <algorithm>
#include <cmath>

#include "kernels/load.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sketch.cc"
#include <hwy/foreach_target.h>  // before highway.h
// The next headers are compiled once per target.
#include <hwy/highway.h>

#include "kernels/vec-inl.h"

#ifndef MSPROBE_KERNELS_SKETCH_CC_ONCE_
#  define MSPROBE_KERNELS_SKETCH_CC_ONCE_
namespace msprobe::kernels {
namespace {

constexpr double kHuge = 1e30;  // the float next above it is that of 1e30f
constexpr uint64_t kSignBits = 64;

// One step of SplitMix64.
inline uint64_t MixOf(uint64_t state) {
  uint64_t z = state + 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

inline uint64_t SignWord(uint64_t i, uint64_t seed) {
  return MixOf(i / kSignBits ^ seed * 0x5851F42D4C957F2D);
}

inline uint64_t Rotation(uint64_t block, uint32_t k, uint64_t seed) {
  return MixOf(block + seed + 77) % k;
}

void Count(double x, SketchLeftOut* left_out) {
  if (std::isnan(x)) {
    ++left_out->nan;
  } else if (std::isinf(x)) {
    ++left_out->inf;
  } else {
    ++left_out->huge;
  }
}

// Elements of one word of signs (or fewer), one by one. `first`: index of the first.
void AddOneByOne(const std::byte* data, size_t n, DType dtype, uint64_t first, uint64_t seed,
                 double* sums, SketchLeftOut* left_out) {
  double values[kSignBits];
  LoadDoubles(data, 1, n, dtype, values);
  const uint64_t signs = SignWord(first, seed) >> (first % kSignBits);
  for (size_t i = 0; i < n; ++i) {
    if (!(std::fabs(values[i]) < kHuge)) {
      Count(values[i], left_out);
    } else {
      sums[i] += (signs >> i & 1) != 0 ? -values[i] : values[i];
    }
  }
}

}  // namespace
}  // namespace msprobe::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace msprobe::kernels {
namespace HWY_NAMESPACE {
namespace {

HWY_INLINE VF LoadInOrder(const float* p) { return hn::LoadU(DF(), p); }
HWY_INLINE VF LoadInOrder(const Half* p) {
  return HalvesAsFloat(reinterpret_cast<const uint16_t*>(p));
}
HWY_INLINE VF LoadInOrder(const Brain* p) {
  const hn::RebindToUnsigned<DF> du;
  const auto bits = hn::LoadU(hn::Rebind<uint16_t, DF>(), reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(DF(), hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
}
HWY_INLINE VD LoadInOrder(const double* p) { return hn::LoadU(DD(), p); }
HWY_INLINE VD LoadInOrder(const int32_t* p) {
  return hn::PromoteTo(DD(), hn::LoadU(hn::Rebind<int32_t, DD>(), p));
}
HWY_INLINE VD LoadInOrder(const int64_t* p) {
  return hn::ConvertTo(DD(), hn::LoadU(hn::Rebind<int64_t, DD>(), p));
}

HWY_INLINE void AddAt(double* sums, VD v) {
  const DD dd;
  hn::StoreU(hn::Add(hn::LoadU(dd, sums), v), dd, sums);
}
HWY_INLINE void AddAt(double* sums, VF v) {
  AddAt(sums, LowerAsDouble(v));
  AddAt(sums + hn::Lanes(DD()), UpperAsDouble(v));
}

// One word of signs: 64 elements. False: some of them were left out. D: DF or DD.
template <class D, class T>
HWY_INLINE bool AddWord(D d, const T* HWY_RESTRICT p, uint64_t signs, double* HWY_RESTRICT sums) {
  using V = hn::Vec<D>;
  using Lane = hn::TFromD<D>;
  const size_t lanes = hn::Lanes(d);
  const V limit = hn::Set(d, static_cast<Lane>(kHuge));
  auto all = hn::Eq(limit, limit);
  for (size_t i = 0; i < kSignBits; i += lanes) {
    const V v = LoadInOrder(p + i);
    const auto usable = hn::Lt(hn::Abs(v), limit);
    all = hn::And(all, usable);
    const uint64_t bits = signs >> i;
    const auto minus = hn::LoadMaskBits(d, reinterpret_cast<const uint8_t*>(&bits));
    AddAt(sums + i, hn::IfThenElseZero(usable, hn::IfThenElse(minus, hn::Neg(v), v)));
  }
  return hn::AllTrue(d, all);
}

template <class T>
struct LanesOf {
  using type = DF;
};
template <>
struct LanesOf<double> {
  using type = DD;
};
template <>
struct LanesOf<int32_t> {
  using type = DD;
};
template <>
struct LanesOf<int64_t> {
  using type = DD;
};

// What AddWord left out of these 64 elements.
template <class D, class T>
HWY_NOINLINE void CountWord(D d, const T* HWY_RESTRICT p, SketchLeftOut* left_out) {
  const auto limit = hn::Set(d, static_cast<hn::TFromD<D>>(kHuge));
  for (size_t i = 0; i < kSignBits; i += hn::Lanes(d)) {
    const auto v = LoadInOrder(p + i);
    const size_t nan = hn::CountTrue(d, hn::IsNaN(v)), inf = hn::CountTrue(d, hn::IsInf(v));
    left_out->nan += nan;
    left_out->inf += inf;
    left_out->huge += hn::Lanes(d) - nan - inf - hn::CountTrue(d, hn::Lt(hn::Abs(v), limit));
  }
}

template <class T>
HWY_NOINLINE void AddItems(const std::byte* data, size_t n, DType dtype, uint64_t first, uint32_t k,
                           uint64_t seed, double* sums, SketchLeftOut* left_out) {
  const typename LanesOf<T>::type d;
  uint64_t block = first / k;
  double* row = sums + Rotation(block, k, seed);
  size_t done = 0;
  while (done < n) {
    const uint64_t i = first + done;
    if (i / k != block) {
      block = i / k;
      row = sums + Rotation(block, k, seed);
    }
    const std::byte* const p = data + done * sizeof(T);
    double* const at = row + i % k;
    const size_t rest = std::min<size_t>(n - done, kSignBits - i % kSignBits);
    if (rest < kSignBits) {
      AddOneByOne(p, rest, dtype, i, seed, at, left_out);
    } else if (!AddWord(d, reinterpret_cast<const T*>(p), SignWord(i, seed), at)) {
      CountWord(d, reinterpret_cast<const T*>(p), left_out);
    }
    done += rest;
  }
}

void Run(const std::byte* data, size_t n, DType dtype, uint64_t first, uint32_t k, uint64_t seed,
         double* sums, SketchLeftOut* left_out) {
  switch (dtype) {
    case DType::kF16:
      return AddItems<Half>(data, n, dtype, first, k, seed, sums, left_out);
    case DType::kBF16:
      return AddItems<Brain>(data, n, dtype, first, k, seed, sums, left_out);
    case DType::kF32:
      return AddItems<float>(data, n, dtype, first, k, seed, sums, left_out);
    case DType::kF64:
      return AddItems<double>(data, n, dtype, first, k, seed, sums, left_out);
    case DType::kI32:
      return AddItems<int32_t>(data, n, dtype, first, k, seed, sums, left_out);
    case DType::kI64:
      return AddItems<int64_t>(data, n, dtype, first, k, seed, sums, left_out);
    default:
      break;
  }
  double values[kBlock];
  const size_t item = ItemSize(dtype);
  for (size_t done = 0; done < n; done += kBlock) {
    const size_t m = std::min(kBlock, n - done);
    LoadDoubles(data + done * item, 1, m, dtype, values);
    AddItems<double>(reinterpret_cast<const std::byte*>(values), m, DType::kF64, first + done, k,
                     seed, sums, left_out);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace msprobe::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msprobe::kernels {
HWY_EXPORT(Run);

void AddToSketch(const std::byte* data, size_t n, DType dtype, uint64_t first, uint32_t k,
                 uint64_t seed, double* sums, SketchLeftOut* left_out) {
  HWY_DYNAMIC_DISPATCH(Run)(data, n, dtype, first, k, seed, sums, left_out);
}

void FoldSketch(uint32_t k, double* sums) {
  for (uint32_t j = 0; j < k; ++j) sums[j] += sums[k + j];
}

uint32_t FirstSlot(uint32_t k, uint64_t seed) {
  return static_cast<uint32_t>(Rotation(0, k, seed));
}
}  // namespace msprobe::kernels
#endif
