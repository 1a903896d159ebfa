// Exact statistics of bools and integers. Plain loops: the compiler makes vectors of them, once per
// Highway target.
#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

#include "kernels/load.h"
#include "kernels/stats.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/int_stats.cc"
#include <hwy/foreach_target.h>  // before highway.h
// The next header is compiled once per target.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace msprobe::kernels {
namespace HWY_NAMESPACE {
namespace {

__extension__ using Int128 = __int128;
__extension__ using UInt128 = unsigned __int128;

template <class T>
struct IntTotals {
  T min = std::numeric_limits<T>::max();
  T max = std::numeric_limits<T>::min();
  Int128 sum = 0;
  UInt128 sumsq = 0;      // of types up to 32 bits
  double wide_sumsq = 0;  // of 64-bit types
};

template <class T>
HWY_INLINE void AddSums(const T* HWY_RESTRICT x, size_t n, IntTotals<T>* totals) {
  int64_t sum = 0;
  uint64_t low = 0, high = 0;
  for (size_t i = 0; i < n; ++i) {
    const auto v = static_cast<int64_t>(x[i]);
    const uint64_t square = static_cast<uint64_t>(v) * static_cast<uint64_t>(v);
    sum += v;
    low += square & 0xFFFFFFFFu;
    high += square >> 32;
  }
  totals->sum += sum;
  totals->sumsq += (static_cast<UInt128>(high) << 32) + low;
}

// Halves of 32 bits sum in 64; the upper one is signed for signed T.
template <class T>
HWY_INLINE void AddWideSums(const T* HWY_RESTRICT x, size_t n, IntTotals<T>* totals) {
  uint64_t low = 0;
  T high = 0;
  std::array<double, 8> squares{};
  size_t i = 0;
  const auto add = [&](size_t k, T value) HWY_ATTR {
    low += static_cast<uint32_t>(value);
    high = static_cast<T>(high + (value >> 32));
    const auto v = static_cast<double>(value);
    squares[k] += v * v;
  };
  for (; i + 8 <= n; i += 8) {
    for (size_t k = 0; k < 8; ++k) add(k, x[i + k]);
  }
  for (; i < n; ++i) add(0, x[i]);
  totals->sum += static_cast<Int128>(low) + static_cast<Int128>(high) * (Int128{1} << 32);
  for (const double s : squares) totals->wide_sumsq += s;
}

// One block of at most kBlock elements: no partial sum can overflow 64 bits.
template <class T>
HWY_NOINLINE void AddIntBlock(const T* HWY_RESTRICT x, size_t n, IntTotals<T>* totals) {
  T least = totals->min, most = totals->max;
  for (size_t i = 0; i < n; ++i) {
    least = x[i] < least ? x[i] : least;
    most = x[i] > most ? x[i] : most;
  }
  totals->min = least;
  totals->max = most;
  if constexpr (sizeof(T) == 8) {
    AddWideSums(x, n, totals);
  } else {
    AddSums(x, n, totals);
  }
}

template <class T>
IntStats IntStatsAs(const std::byte* data, size_t n, ptrdiff_t stride, bool is_bool) {
  const ptrdiff_t step = stride * static_cast<ptrdiff_t>(sizeof(T));
  alignas(64) std::array<T, kBlock> block;  // copied: `data` may not be aligned
  IntTotals<T> totals;
  for (size_t i = 0; i < n; i += kBlock) {
    const size_t m = std::min(kBlock, n - i);
    PackItems(data + static_cast<ptrdiff_t>(i) * step, stride, m, sizeof(T),
              reinterpret_cast<std::byte*>(block.data()));
    if (is_bool) {
      for (size_t k = 0; k < m; ++k) block[k] = block[k] != 0;
    }
    AddIntBlock(block.data(), m, &totals);
  }
  IntStats s;
  s.count = n;
  s.is_unsigned = std::is_unsigned_v<T> && sizeof(T) == 8;
  s.min = static_cast<int64_t>(totals.min);
  s.max = static_cast<int64_t>(totals.max);
  s.sum = totals.sum;
  s.sumsq = static_cast<double>(totals.sumsq) + totals.wide_sumsq;
  if (n == 0) s.min = s.max = 0;
  return s;
}

IntStats Run(const std::byte* data, size_t n, ptrdiff_t stride, DType dtype) {
  switch (dtype) {
    case DType::kI8:
      return IntStatsAs<int8_t>(data, n, stride, false);
    case DType::kU16:
      return IntStatsAs<uint16_t>(data, n, stride, false);
    case DType::kI16:
      return IntStatsAs<int16_t>(data, n, stride, false);
    case DType::kU32:
      return IntStatsAs<uint32_t>(data, n, stride, false);
    case DType::kI32:
      return IntStatsAs<int32_t>(data, n, stride, false);
    case DType::kU64:
      return IntStatsAs<uint64_t>(data, n, stride, false);
    case DType::kI64:
      return IntStatsAs<int64_t>(data, n, stride, false);
    default:
      return IntStatsAs<uint8_t>(data, n, stride, dtype == DType::kBool);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace msprobe::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msprobe::kernels {
HWY_EXPORT(Run);

IntStats IntStatsOf(const std::byte* data, size_t n, ptrdiff_t stride, DType dtype) {
  return HWY_DYNAMIC_DISPATCH(Run)(data, n, stride, dtype);
}

void IntStats::Merge(const IntStats& other) {
  if (other.count == 0) return;
  if (count == 0) {
    *this = other;
    return;
  }
  if (is_unsigned) {
    min = static_cast<int64_t>(
        std::min(static_cast<uint64_t>(min), static_cast<uint64_t>(other.min)));
    max = static_cast<int64_t>(
        std::max(static_cast<uint64_t>(max), static_cast<uint64_t>(other.max)));
  } else {
    min = std::min(min, other.min);
    max = std::max(max, other.max);
  }
  count += other.count;
  sum += other.sum;
  sumsq += other.sumsq;
}
}  // namespace msprobe::kernels
#endif
