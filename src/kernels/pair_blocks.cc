#include "kernels/pair_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/load.h"
#include "tensor/convert.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/pair_blocks.cc"
#include <hwy/foreach_target.h>  // before highway.h
// The next headers are compiled once per target.
#include <hwy/highway.h>

#include "kernels/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace msprobe::kernels {
namespace HWY_NAMESPACE {
namespace {

double AsDouble(float x) { return static_cast<double>(x); }
double AsDouble(double x) { return x; }
double AsDouble(Half x) { return static_cast<double>(HalfToFloat(x.bits)); }
double AsDouble(Brain x) { return static_cast<double>(BFloat16ToFloat(x.bits)); }

// Element i; `p` may not be aligned.
template <class T>
double ValueAt(const T* p, size_t i) {
  T value;
  std::memcpy(&value, p + i, sizeof(T));
  return AsDouble(value);
}

// The relative error of compare.md 7.3 in the type of the vectors, its maximum, and counts (as
// numbers: exact up to kBlock) of elements below the two limits and of unequal elements.
template <class D>
struct RelativePart {
  using V = hn::Vec<D>;
  using T = hn::TFromD<D>;
  V max_rel, below1, below5, unequal;

  HWY_INLINE void Clear() { max_rel = below1 = below5 = unequal = hn::Zero(D()); }
  HWY_INLINE void Add(V a, V b) {
    const D d;
    const V one = hn::Set(d, T{1});
    const V eps = hn::Set(d, std::numeric_limits<T>::epsilon());
    unequal = hn::Add(unequal, hn::IfThenElseZero(hn::Ne(a, b), one));
    const V shift = hn::IfThenElseZero(hn::Eq(b, hn::Zero(d)), eps);
    a = hn::Add(a, shift);
    b = hn::Add(b, shift);
    const V rel = hn::Abs(hn::Div(hn::Sub(a, b), b));
    max_rel = hn::Max(max_rel, rel);
    below1 = hn::Add(below1, hn::IfThenElseZero(hn::Lt(rel, hn::Set(d, T(0.001))), one));
    below5 = hn::Add(below5, hn::IfThenElseZero(hn::Lt(rel, hn::Set(d, T(0.005))), one));
  }
};

// Sums in double of one half of the accumulators.
struct SumPart {
  VD dot, aa, bb, dd, max_abs;

  HWY_INLINE void Clear() { dot = aa = bb = dd = max_abs = hn::Zero(DD()); }
  HWY_INLINE void Add(VD a, VD b) {
    const VD diff = hn::Sub(a, b);
    dot = hn::MulAdd(a, b, dot);
    aa = hn::MulAdd(a, a, aa);
    bb = hn::MulAdd(b, b, bb);
    dd = hn::MulAdd(diff, diff, dd);
    max_abs = hn::Max(max_abs, hn::Abs(diff));
  }
};

struct SumBlock {
  SumPart even, odd;

  HWY_INLINE void Clear() {
    even.Clear();
    odd.Clear();
  }
  HWY_INLINE void Add(VF a, VF b) {
    even.Add(LowerAsDouble(a), LowerAsDouble(b));
    odd.Add(UpperAsDouble(a), UpperAsDouble(b));
  }
};

// Two vectors of elements.
template <class T>
HWY_INLINE void Step(const T* a, const T* b, SumBlock* sums, RelativePart<DF>* rel) {
  VF a0, a1, b0, b1;
  LoadPair(a, &a0, &a1);
  LoadPair(b, &b0, &b1);
  sums->Add(a0, b0);
  rel->Add(a0, b0);
  sums->Add(a1, b1);
  rel->Add(a1, b1);
}
HWY_INLINE void Step(const double* a, const double* b, SumBlock* sums, RelativePart<DD>* rel) {
  const DD dd;
  const size_t lanes = hn::Lanes(dd);
  const VD a0 = hn::LoadU(dd, a), b0 = hn::LoadU(dd, b);
  const VD a1 = hn::LoadU(dd, a + lanes), b1 = hn::LoadU(dd, b + lanes);
  sums->even.Add(a0, b0);
  rel->Add(a0, b0);
  sums->odd.Add(a1, b1);
  rel->Add(a1, b1);
}

// Where in the block |a - b| reaches `value` first.
template <class T>
size_t IndexOfDifference(const T* a, const T* b, size_t n, double value) {
  for (size_t i = 0; i < n; ++i) {
    if (std::fabs(ValueAt(a, i) - ValueAt(b, i)) == value) return i;
  }
  return 0;
}
template <class T>
size_t IndexOfUnequal(const T* a, const T* b, size_t n) {
  size_t i = 0;
  while (i < n && ValueAt(a, i) == ValueAt(b, i)) ++i;
  return i;
}

// T on both sides, D the tag of the work type.
template <class T, class D>
HWY_NOINLINE size_t AddPairs(const T* HWY_RESTRICT a, const T* HWY_RESTRICT b, size_t n,
                             PairTotals* totals) {
  constexpr size_t kMaxStep = 2 * HWY_MAX_BYTES / sizeof(hn::TFromD<D>);
  const size_t step = 2 * hn::Lanes(D());
  PairErrors& e = totals->errors;
  size_t done = 0;
  while (done < n) {
    const size_t m = HWY_MIN(kBlock, n - done);
    const T* HWY_RESTRICT pa = a + done;
    const T* HWY_RESTRICT pb = b + done;
    SumBlock sums;
    RelativePart<D> rel;
    sums.Clear();
    rel.Clear();
    size_t i = 0;
    for (; i + step <= m; i += step) Step(pa + i, pb + i, &sums, &rel);
    size_t padding = 0;
    if (i < m) {
      HWY_ALIGN T ta[kMaxStep] = {};
      HWY_ALIGN T tb[kMaxStep] = {};
      std::memcpy(ta, pa + i, (m - i) * sizeof(T));
      std::memcpy(tb, pb + i, (m - i) * sizeof(T));
      Step(ta, tb, &sums, &rel);
      padding = step - (m - i);  // 0 against 0: equal, below both limits
    }
    const double aa = Total(hn::Add(sums.even.aa, sums.odd.aa));
    const double bb = Total(hn::Add(sums.even.bb, sums.odd.bb));
    if (!std::isfinite(aa) || !std::isfinite(bb)) break;
    totals->a_sumsq.Add(aa);
    totals->b_sumsq.Add(bb);
    totals->dot.Add(Total(hn::Add(sums.even.dot, sums.odd.dot)));
    totals->diff_sumsq.Add(Total(hn::Add(sums.even.dd, sums.odd.dd)));
    const D d;
    const auto unequal = static_cast<uint64_t>(Total(rel.unequal));
    if (unequal > 0) {
      if (e.unequal == 0) e.first_unequal = e.count + IndexOfUnequal(pa, pb, m);
      e.unequal += unequal;
      const double max_abs =
          hn::GetLane(hn::MaxOfLanes(DD(), hn::Max(sums.even.max_abs, sums.odd.max_abs)));
      if (max_abs > e.max_abs) {
        e.max_abs = max_abs;
        e.max_abs_index = e.count + IndexOfDifference(pa, pb, m, max_abs);
      }
      e.max_rel =
          std::max(e.max_rel, static_cast<double>(hn::GetLane(hn::MaxOfLanes(d, rel.max_rel))));
    }
    e.below_thousandth += static_cast<uint64_t>(Total(rel.below1)) - padding;
    e.below_five_thousandths += static_cast<uint64_t>(Total(rel.below5)) - padding;
    e.count += m;
    done += m;
  }
  return done;
}

size_t AddPairsOf(const std::byte* a, const std::byte* b, size_t n, PairType type,
                  PairTotals* totals) {
  switch (type) {
    case PairType::kF16:
      return AddPairs<Half, DF>(reinterpret_cast<const Half*>(a), reinterpret_cast<const Half*>(b),
                                n, totals);
    case PairType::kBF16:
      return AddPairs<Brain, DF>(reinterpret_cast<const Brain*>(a),
                                 reinterpret_cast<const Brain*>(b), n, totals);
    case PairType::kF32:
      return AddPairs<float, DF>(reinterpret_cast<const float*>(a),
                                 reinterpret_cast<const float*>(b), n, totals);
    default:
      return AddPairs<double, DD>(reinterpret_cast<const double*>(a),
                                  reinterpret_cast<const double*>(b), n, totals);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace msprobe::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msprobe::kernels {
HWY_EXPORT(AddPairsOf);

size_t AddFinitePairs(const std::byte* a, const std::byte* b, size_t n, PairType type,
                      PairTotals* totals) {
  return HWY_DYNAMIC_DISPATCH(AddPairsOf)(a, b, n, type, totals);
}
}  // namespace msprobe::kernels
#endif
