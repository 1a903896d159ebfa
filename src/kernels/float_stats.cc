#include "kernels/float_stats.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/load.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/float_stats.cc"
#include <hwy/foreach_target.h>  // before highway.h
// The next headers are compiled once per target.
#include <hwy/highway.h>

#include "kernels/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace msprobe::kernels {
namespace HWY_NAMESPACE {
namespace {

struct FloatRange {
  VF min, max;
};
struct DoubleRange {
  VD min, max;
};

// One pair of float vectors into the running block.
struct Block32 {
  FloatRange range0, range1;
  VD s0, s1, s2, s3, q0, q1, q2, q3;

  HWY_INLINE void Clear() {
    const DF df;
    const DD dd;
    range0.min = range1.min = hn::Set(df, std::numeric_limits<float>::infinity());
    range0.max = range1.max = hn::Set(df, -std::numeric_limits<float>::infinity());
    s0 = s1 = s2 = s3 = q0 = q1 = q2 = q3 = hn::Zero(dd);
  }
  HWY_INLINE void Extend(VF v0, VF v1) {
    range0.min = hn::Min(range0.min, v0);
    range0.max = hn::Max(range0.max, v0);
    range1.min = hn::Min(range1.min, v1);
    range1.max = hn::Max(range1.max, v1);
  }
  HWY_INLINE void Sum(VF v0, VF v1) {
    const VD a = LowerAsDouble(v0), b = UpperAsDouble(v0);
    const VD c = LowerAsDouble(v1), d = UpperAsDouble(v1);
    s0 = hn::Add(s0, a);
    s1 = hn::Add(s1, b);
    s2 = hn::Add(s2, c);
    s3 = hn::Add(s3, d);
    q0 = hn::MulAdd(a, a, q0);
    q1 = hn::MulAdd(b, b, q1);
    q2 = hn::MulAdd(c, c, q2);
    q3 = hn::MulAdd(d, d, q3);
  }
};

// Vector lanes of CompensatedSum.
struct LaneSums {
  VD hi, lo;

  HWY_INLINE void Clear() { hi = lo = hn::Zero(DD()); }
  HWY_INLINE void Add(VD x) {
    const VD s = hn::Add(hi, x);
    const VD virtual_x = hn::Sub(s, hi);
    lo = hn::Add(lo, hn::Add(hn::Sub(hi, hn::Sub(s, virtual_x)), hn::Sub(x, virtual_x)));
    hi = s;
  }
  HWY_INLINE void AddTo(CompensatedSum* out) const {
    const DD dd;
    HWY_ALIGN double h[kMaxDoubles];
    HWY_ALIGN double l[kMaxDoubles];
    hn::Store(hi, dd, h);
    hn::Store(lo, dd, l);
    for (size_t k = 0; k < hn::Lanes(dd); ++k) out->Add({h[k], l[k]});
  }
};

// A zero-padded copy of the last `rest` < 2N elements, and one padded with the first of them.
template <class T>
struct Tail {
  HWY_ALIGN T zeros[2 * kMaxFloats];
  HWY_ALIGN T repeats[2 * kMaxFloats];

  HWY_INLINE Tail(const T* p, size_t rest) {
    std::fill(zeros, zeros + 2 * kMaxFloats, T{});
    std::memcpy(zeros, p, rest * sizeof(T));  // `p` may not be aligned
    std::fill(repeats, repeats + 2 * kMaxFloats, zeros[0]);
    std::memcpy(repeats, p, rest * sizeof(T));
  }
};

// T: float, Half or Brain; LoadPair gives 2N elements in any order.
template <class T>
HWY_NOINLINE size_t Add32(const T* HWY_RESTRICT p, size_t n, FloatTotals* totals) {
  const DF df;
  const DD dd;
  const size_t pair = 2 * hn::Lanes(df);
  Block32 block;
  block.Clear();
  FloatRange range = block.range0;
  LaneSums sum, sumsq;
  sum.Clear();
  sumsq.Clear();
  size_t done = 0;
  while (done < n) {
    const size_t m = HWY_MIN(kBlock, n - done);
    const T* HWY_RESTRICT b = p + done;
    block.Clear();
    size_t i = 0;
    for (; i + pair <= m; i += pair) {
      VF v0, v1;
      LoadPair(b + i, &v0, &v1);
      block.Extend(v0, v1);
      block.Sum(v0, v1);
    }
    if (i < m) {
      const Tail<T> tail(b + i, m - i);
      VF v0, v1;
      LoadPair(tail.repeats, &v0, &v1);
      block.Extend(v0, v1);
      LoadPair(tail.zeros, &v0, &v1);
      block.Sum(v0, v1);
    }
    const VD q = hn::Add(hn::Add(block.q0, block.q1), hn::Add(block.q2, block.q3));
    if (!hn::AllTrue(dd, hn::IsFinite(q))) break;
    sumsq.Add(q);
    sum.Add(hn::Add(hn::Add(block.s0, block.s1), hn::Add(block.s2, block.s3)));
    range.min = hn::Min(range.min, hn::Min(block.range0.min, block.range1.min));
    range.max = hn::Max(range.max, hn::Max(block.range0.max, block.range1.max));
    done += m;
  }
  if (done > 0) {
    sum.AddTo(&totals->sum);
    sumsq.AddTo(&totals->sumsq);
    const auto least = static_cast<double>(hn::GetLane(hn::MinOfLanes(df, range.min)));
    const auto most = static_cast<double>(hn::GetLane(hn::MaxOfLanes(df, range.max)));
    totals->min = std::min(totals->min, least);
    totals->max = std::max(totals->max, most);
  }
  return done;
}

struct Block64 {
  DoubleRange range;
  LaneSums s0, s1;
  VD q0, q1;

  HWY_INLINE void Clear() {
    const DD dd;
    range.min = hn::Set(dd, std::numeric_limits<double>::infinity());
    range.max = hn::Set(dd, -std::numeric_limits<double>::infinity());
    s0.Clear();
    s1.Clear();
    q0 = q1 = hn::Zero(dd);
  }
  HWY_INLINE void Extend(VD v0, VD v1) {
    range.min = hn::Min(range.min, hn::Min(v0, v1));
    range.max = hn::Max(range.max, hn::Max(v0, v1));
  }
  HWY_INLINE void Sum(VD v0, VD v1) {
    s0.Add(v0);
    s1.Add(v1);
    q0 = hn::MulAdd(v0, v0, q0);
    q1 = hn::MulAdd(v1, v1, q1);
  }
};

HWY_NOINLINE size_t Add64(const double* HWY_RESTRICT p, size_t n, FloatTotals* totals) {
  const DD dd;
  const size_t lanes = hn::Lanes(dd);
  Block64 block;
  block.Clear();
  DoubleRange range = block.range;
  LaneSums sum, sumsq;
  sum.Clear();
  sumsq.Clear();
  size_t done = 0;
  while (done < n) {
    const size_t m = HWY_MIN(kBlock, n - done);
    const double* HWY_RESTRICT b = p + done;
    block.Clear();
    size_t i = 0;
    for (; i + 2 * lanes <= m; i += 2 * lanes) {
      const VD v0 = hn::LoadU(dd, b + i);
      const VD v1 = hn::LoadU(dd, b + i + lanes);
      block.Extend(v0, v1);
      block.Sum(v0, v1);
    }
    if (i < m) {
      const Tail<double> tail(b + i, m - i);
      block.Extend(hn::Load(dd, tail.repeats), hn::Load(dd, tail.repeats + lanes));
      block.Sum(hn::Load(dd, tail.zeros), hn::Load(dd, tail.zeros + lanes));
    }
    const VD q = hn::Add(block.q0, block.q1);
    if (!hn::AllTrue(dd, hn::IsFinite(q))) break;
    sumsq.Add(q);
    sum.Add(block.s0.hi);
    sum.Add(block.s1.hi);
    sum.lo = hn::Add(sum.lo, hn::Add(block.s0.lo, block.s1.lo));
    range.min = hn::Min(range.min, block.range.min);
    range.max = hn::Max(range.max, block.range.max);
    done += m;
  }
  if (done > 0) {
    sum.AddTo(&totals->sum);
    sumsq.AddTo(&totals->sumsq);
    totals->min = std::min(totals->min, hn::GetLane(hn::MinOfLanes(dd, range.min)));
    totals->max = std::max(totals->max, hn::GetLane(hn::MaxOfLanes(dd, range.max)));
  }
  return done;
}

size_t AddBlocks(const std::byte* data, size_t n, DType dtype, FloatTotals* totals) {
  switch (dtype) {
    case DType::kF16:
      return Add32(reinterpret_cast<const Half*>(data), n, totals);
    case DType::kBF16:
      return Add32(reinterpret_cast<const Brain*>(data), n, totals);
    case DType::kF32:
      return Add32(reinterpret_cast<const float*>(data), n, totals);
    default:
      return Add64(reinterpret_cast<const double*>(data), n, totals);
  }
}

// Values of which not all are finite, at most kBlock of them.
struct Mixed64 {
  Block64 block;
  VD nan, pos_inf, neg_inf;  // how many in each lane

  HWY_INLINE void Clear() {
    block.Clear();
    nan = pos_inf = neg_inf = hn::Zero(DD());
  }
  HWY_INLINE void Add(VD v0, VD v1) {
    block.range.min = hn::Min(block.range.min, hn::Min(Or(v0, kInf), Or(v1, kInf)));
    block.range.max = hn::Max(block.range.max, hn::Max(Or(v0, -kInf), Or(v1, -kInf)));
    block.Sum(Or(v0, 0), Or(v1, 0));
    Count(v0);
    Count(v1);
  }

 private:
  static constexpr double kInf = std::numeric_limits<double>::infinity();

  static HWY_INLINE VD Or(VD v, double instead) {
    return hn::IfThenElse(hn::IsFinite(v), v, hn::Set(DD(), instead));
  }
  HWY_INLINE void Count(VD v) {
    const DD dd;
    const VD one = hn::Set(dd, 1);
    nan = hn::Add(nan, hn::IfThenElseZero(hn::IsNaN(v), one));
    pos_inf = hn::Add(pos_inf, hn::IfThenElseZero(hn::Eq(v, hn::Set(dd, kInf)), one));
    neg_inf = hn::Add(neg_inf, hn::IfThenElseZero(hn::Eq(v, hn::Set(dd, -kInf)), one));
  }
};

HWY_NOINLINE bool AddMixed(const double* HWY_RESTRICT p, size_t n, FloatTotals* totals,
                           NonFiniteCounts* counts) {
  const DD dd;
  const size_t pair = 2 * hn::Lanes(dd);
  Mixed64 mixed;
  mixed.Clear();
  size_t i = 0;
  for (; i + pair <= n; i += pair) mixed.Add(hn::LoadU(dd, p + i), hn::LoadU(dd, p + i + pair / 2));
  const VD q = hn::Add(mixed.block.q0, mixed.block.q1);
  if (!hn::AllTrue(dd, hn::IsFinite(q))) return false;
  FloatTotals rest;
  NonFiniteCounts others;
  for (; i < n; ++i) AddOne(p[i], &rest, &others);
  if (!std::isfinite(rest.sumsq.value())) return false;
  LaneSums sumsq;
  sumsq.Clear();
  sumsq.Add(q);
  sumsq.AddTo(&totals->sumsq);
  mixed.block.s0.AddTo(&totals->sum);
  mixed.block.s1.AddTo(&totals->sum);
  totals->sum.Add(rest.sum);
  totals->sumsq.Add(rest.sumsq);
  const double least = hn::GetLane(hn::MinOfLanes(dd, mixed.block.range.min));
  const double most = hn::GetLane(hn::MaxOfLanes(dd, mixed.block.range.max));
  totals->min = std::min({totals->min, rest.min, least});
  totals->max = std::max({totals->max, rest.max, most});
  const auto in_lanes = [&](VD v) {
    return static_cast<uint64_t>(hn::GetLane(hn::SumOfLanes(dd, v)));
  };
  counts->nan += others.nan + in_lanes(mixed.nan);
  counts->pos_inf += others.pos_inf + in_lanes(mixed.pos_inf);
  counts->neg_inf += others.neg_inf + in_lanes(mixed.neg_inf);
  return true;
}

const char* Name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace msprobe::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msprobe::kernels {
HWY_EXPORT(AddBlocks);
HWY_EXPORT(AddMixed);
HWY_EXPORT(Name);

size_t AddFiniteBlocks(const std::byte* data, size_t n, DType dtype, FloatTotals* totals) {
  return HWY_DYNAMIC_DISPATCH(AddBlocks)(data, n, dtype, totals);
}
bool AddMixedBlock(const double* values, size_t n, FloatTotals* totals, NonFiniteCounts* counts) {
  return HWY_DYNAMIC_DISPATCH(AddMixed)(values, n, totals, counts);
}
const char* TargetName() { return HWY_DYNAMIC_DISPATCH(Name)(); }
}  // namespace msprobe::kernels
#endif
