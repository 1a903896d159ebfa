#include "kernels/pair_errors.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <limits>

#include "kernels/load.h"
#include "kernels/pair_blocks.h"
#include "kernels/scaled_sum.h"

namespace msprobe::kernels {
namespace {

constexpr double kEps = std::numeric_limits<double>::epsilon();
// Integers up to here are exact in double, and the rounded difference of two of them is the rounded
// exact difference.
constexpr int64_t kExactInteger = int64_t{1} << 53;

struct Sides {
  const std::byte* a;
  DType a_dtype;
  const std::byte* b;
  DType b_dtype;

  Sides From(size_t element) const {
    return {a + element * ItemSize(a_dtype), a_dtype, b + element * ItemSize(b_dtype), b_dtype};
  }
};

// What one pair adds; the shared end of the scalar paths.
struct OnePair {
  double dot, aa, bb, dd, max_abs, rel;
  bool unequal;
};

void AddOne(const OnePair& p, PairTotals* t) {
  PairErrors& e = t->errors;
  t->dot.Add(p.dot);
  t->a_sumsq.Add(p.aa);
  t->b_sumsq.Add(p.bb);
  t->diff_sumsq.Add(p.dd);
  if (p.max_abs > e.max_abs) {
    e.max_abs = p.max_abs;
    e.max_abs_index = e.count;
  }
  e.max_rel = std::max(e.max_rel, p.rel);
  e.below_thousandth += p.rel < 0.001;
  e.below_five_thousandths += p.rel < 0.005;
  if (p.unequal && e.unequal++ == 0) e.first_unequal = e.count;
  ++e.count;
}

double RelativeError(double a, double b) {
  const double shift = b == 0 ? kEps : 0;
  return std::fabs(((a + shift) - (b + shift)) / (b + shift));
}

enum class PairClass : uint8_t { kFinite, kBothNan, kBothInf, kMismatch };

template <class T>
PairClass ClassOf(T a, T b) {
  if (std::isfinite(a) && std::isfinite(b)) return PairClass::kFinite;
  if (std::isnan(a) && std::isnan(b)) return PairClass::kBothNan;
  if (a == b) return PairClass::kBothInf;
  return PairClass::kMismatch;
}

// Non-finite pairs become 0 on both sides and are counted; `first` is the index of the first
// element. The numbers of mismatches, which the caller takes back from the counts of small relative
// errors, are returned.
template <class T>
uint64_t ZeroNonFinite(T* a, T* b, size_t n, uint64_t first, PairErrors* e) {
  uint64_t mismatches = 0;
  for (size_t i = 0; i < n; ++i) {
    const PairClass c = ClassOf(a[i], b[i]);
    if (c == PairClass::kFinite) continue;
    a[i] = b[i] = 0;
    e->both_nan += c == PairClass::kBothNan;
    e->both_inf += c == PairClass::kBothInf;
    if (c != PairClass::kMismatch) continue;
    ++mismatches;
    if (e->unequal == 0 || first + i < e->first_unequal) e->first_unequal = first + i;
    ++e->unequal;
  }
  e->class_mismatch += mismatches;
  e->rel_nan += mismatches;
  return mismatches;
}

void AddFiniteOneByOne(const double* a, const double* b, size_t n, PairTotals* t) {
  for (size_t i = 0; i < n; ++i) {
    const double diff = a[i] - b[i];
    AddOne({a[i] * b[i], a[i] * a[i], b[i] * b[i], diff * diff, std::fabs(diff),
            RelativeError(a[i], b[i]), a[i] != b[i]},
           t);
  }
}

// Pairs of T, straight from memory; T: float or double.
template <class T>
bool AddWholeBlock(const T* a, const T* b, size_t n, PairTotals* t) {
  constexpr PairType kType = sizeof(T) == 8 ? PairType::kF64 : PairType::kF32;
  const auto* pa = reinterpret_cast<const std::byte*>(a);
  const auto* pb = reinterpret_cast<const std::byte*>(b);
  return AddFinitePairs(pa, pb, n, kType, t) == n;
}

// A block of at most kBlock loaded pairs that AddWholeBlock refuses; a and b are overwritten where
// not finite.
template <class T>
void AddSpecialBlock(T* a, T* b, size_t n, PairTotals* t) {
  PairErrors& e = t->errors;
  PairErrors seen;  // apart, so that the kernel finds `unequal` of the earlier elements only
  const uint64_t first = e.count;
  const uint64_t mismatches = ZeroNonFinite(a, b, n, first, &seen);
  if (!AddWholeBlock(a, b, n, t)) {
    // Overflowed sums of finite doubles.
    if constexpr (sizeof(T) == 8) AddFiniteOneByOne(a, b, n, t);
  }
  e.below_thousandth -= mismatches;
  e.below_five_thousandths -= mismatches;
  e.class_mismatch += seen.class_mismatch;
  e.both_nan += seen.both_nan;
  e.both_inf += seen.both_inf;
  e.rel_nan += seen.rel_nan;
  if (seen.unequal > 0) {
    e.first_unequal =
        e.unequal == 0 ? seen.first_unequal : std::min(e.first_unequal, seen.first_unequal);
    e.unequal += seen.unequal;
  }
}

bool FitsFloat(DType t) { return IsFloat(t) && t != DType::kF64; }

template <class T>
void Load(const std::byte* data, size_t n, DType dtype, T* out) {
  if constexpr (sizeof(T) == 8) {
    LoadDoubles(data, 1, n, dtype, out);
  } else {
    LoadFloats(data, 1, n, dtype, out);
  }
}

// Any real types, through buffers of T. `special`: AddFinitePairs is known to refuse each block.
template <class T>
void AddLoaded(const Sides& sides, size_t n, PairTotals* t, bool special = false) {
  std::array<T, kBlock> a, b;
  for (size_t i = 0; i < n; i += kBlock) {
    const size_t m = std::min(kBlock, n - i);
    const Sides s = sides.From(i);
    Load(s.a, m, s.a_dtype, a.data());
    Load(s.b, m, s.b_dtype, b.data());
    if (special || !AddWholeBlock(a.data(), b.data(), m, t))
      AddSpecialBlock(a.data(), b.data(), m, t);
  }
}

// Equal types with a kernel: straight from memory, blocks with something special through buffers.
template <class T>
void AddDirect(const Sides& sides, size_t n, PairType type, PairTotals* t) {
  size_t done = 0;
  for (;;) {
    const Sides s = sides.From(done);
    done += AddFinitePairs(s.a, s.b, n - done, type, t);
    if (done == n) return;
    const size_t m = std::min(kBlock, n - done);
    AddLoaded<T>(sides.From(done), m, t, true);
    done += m;
  }
}

__extension__ using Int128 = __int128;

Int128 WideInteger(const std::byte* p, DType dtype) {
  switch (dtype) {
    case DType::kU64:
      return ReadAs<uint64_t>(p);
    case DType::kI64:
      return ReadAs<int64_t>(p);
    default: {
      double value;  // 32 bits and less
      LoadDoubles(p, 1, 1, dtype, &value);
      return static_cast<int64_t>(value);
    }
  }
}

bool ExactInDouble(const std::byte* data, size_t n, DType dtype) {
  if (ItemSize(dtype) < 8) return true;
  bool exact = true;
  for (size_t i = 0; i < n; ++i) {
    const auto x = ReadAs<uint64_t>(data + 8 * i);
    // |x| <= 2^53 for both readings of the bits, the unsigned one without the negative range.
    const uint64_t shifted = x + (dtype == DType::kI64 ? static_cast<uint64_t>(kExactInteger) : 0);
    const uint64_t limit = static_cast<uint64_t>(kExactInteger) * (dtype == DType::kI64 ? 2 : 1);
    exact = exact && shifted <= limit;
  }
  return exact;
}

// Integers of which at least one side has 64 bits: differences exact before rounding.
void AddWideIntegers(const Sides& sides, size_t n, PairTotals* t) {
  for (size_t i = 0; i < n; i += kBlock) {
    const size_t m = std::min(kBlock, n - i);
    const Sides block = sides.From(i);
    if (ExactInDouble(block.a, m, block.a_dtype) && ExactInDouble(block.b, m, block.b_dtype)) {
      AddLoaded<double>(block, m, t);
      continue;
    }
    for (size_t k = 0; k < m; ++k) {
      const Sides s = block.From(k);
      const Int128 exact_a = WideInteger(s.a, s.a_dtype), exact_b = WideInteger(s.b, s.b_dtype);
      const auto a = static_cast<double>(exact_a), b = static_cast<double>(exact_b);
      const auto diff = std::fabs(static_cast<double>(exact_a - exact_b));
      const double rel = exact_b == 0 ? RelativeError(a, b) : diff / std::fabs(b);
      AddOne({a * b, a * a, b * b, diff * diff, diff, rel, exact_a != exact_b}, t);
    }
  }
}

// One complex pair; parts are taken as two reals for the sums, magnitudes for the errors.
void AddComplexPair(std::array<double, 2> a, std::array<double, 2> b, PairTotals* t) {
  PairErrors& e = t->errors;
  bool mismatch = false, nan = false, inf = false;
  for (size_t k = 0; k < 2; ++k) {
    const PairClass c = ClassOf(a[k], b[k]);
    mismatch = mismatch || c == PairClass::kMismatch;
    nan = nan || c == PairClass::kBothNan;
    inf = inf || c == PairClass::kBothInf;
    if (c != PairClass::kFinite) a[k] = b[k] = 0;
  }
  if (mismatch) {
    ++e.class_mismatch;
    ++e.rel_nan;
    if (e.unequal++ == 0) e.first_unequal = e.count;
    ++e.count;
    return;
  }
  e.both_nan += nan;
  e.both_inf += inf && !nan;
  const double re = a[0] - b[0], im = a[1] - b[1];
  const double diff = std::hypot(re, im);
  // b = 0 gets eps on its real part, and so does a: the difference is formed again as for reals.
  const bool zero = b[0] == 0 && b[1] == 0;
  const double rel =
      zero ? std::hypot((a[0] + kEps) - kEps, im) / kEps : diff / std::hypot(b[0], b[1]);
  AddOne({a[0] * b[0] + a[1] * b[1], a[0] * a[0] + a[1] * a[1], b[0] * b[0] + b[1] * b[1],
          re * re + im * im, diff, rel, re != 0 || im != 0},
         t);
}

void AddComplex(const Sides& sides, size_t n, PairTotals* t) {
  std::array<double, 2 * kBlock> a, b;
  for (size_t i = 0; i < n; i += kBlock) {
    const size_t m = std::min(kBlock, n - i);
    const Sides s = sides.From(i);
    LoadComplex(s.a, 1, m, s.a_dtype, a.data());
    LoadComplex(s.b, 1, m, s.b_dtype, b.data());
    for (size_t k = 0; k < m; ++k)
      AddComplexPair({a[2 * k], a[2 * k + 1]}, {b[2 * k], b[2 * k + 1]}, t);
  }
}

// Calls fn(a, b) for the real values that the sums are of, in order: non-finite pairs as zeros,
// both parts of complex pairs.
template <class F>
void EachSummedValue(const Sides& sides, size_t n, const F& fn) {
  const bool complex = IsComplex(sides.a_dtype);
  const size_t parts = complex ? 2 : 1;
  std::array<double, 2 * kBlock> a, b;
  for (size_t i = 0; i < n; i += kBlock) {
    const size_t m = std::min(kBlock, n - i);
    const Sides s = sides.From(i);
    const auto load = complex ? LoadComplex : LoadDoubles;
    load(s.a, 1, m, s.a_dtype, a.data());
    load(s.b, 1, m, s.b_dtype, b.data());
    for (size_t k = 0; k < m * parts; k += parts) {
      bool mismatch = false;
      for (size_t j = k; j < k + parts; ++j) {
        const PairClass c = ClassOf(a[j], b[j]);
        mismatch = mismatch || c == PairClass::kMismatch;
        if (c != PairClass::kFinite) a[j] = b[j] = 0;
      }
      if (mismatch) continue;
      for (size_t j = k; j < k + parts; ++j) fn(a[j], b[j]);
    }
  }
}

// The power of two at `largest`, 1 for 0; infinity (an overflowed difference) gives the largest
// one.
double ScaleFor(double largest) {
  if (largest == 0) return 1;
  if (std::isinf(largest)) return 0x1p1023;
  return std::ldexp(1.0, std::ilogb(largest));
}

void Rescale(const Sides& sides, size_t n, PairErrors* e) {
  double max_a = 0, max_b = 0, max_diff = 0;
  EachSummedValue(sides, n, [&](double a, double b) {
    max_a = std::max(max_a, std::fabs(a));
    max_b = std::max(max_b, std::fabs(b));
    max_diff = std::max(max_diff, std::fabs(a - b));
  });
  e->a_scale = OutOfRange(e->a_sumsq) ? ScaleFor(max_a) : 1;
  e->b_scale = OutOfRange(e->b_sumsq) ? ScaleFor(max_b) : 1;
  e->scale = OutOfRange(e->diff_sumsq) ? ScaleFor(max_diff) : 1;
  CompensatedSum aa, bb, dot, dd;
  EachSummedValue(sides, n, [&](double a, double b) {
    const double sa = a / e->a_scale, sb = b / e->b_scale;
    aa.Add(sa * sa);
    bb.Add(sb * sb);
    dot.Add(sa * sb);
    const double plain = a - b;
    const double diff = std::isinf(plain) ? a / e->scale - b / e->scale : plain / e->scale;
    dd.Add(diff * diff);
  });
  e->a_sumsq = aa.value();
  e->b_sumsq = bb.value();
  e->dot = dot.value();
  e->diff_sumsq = dd.value();
}

void AddAll(const Sides& s, size_t n, WorkType work, PairTotals* t) {
  if (IsComplex(s.a_dtype)) return AddComplex(s, n, t);
  const bool equal = s.a_dtype == s.b_dtype;
  if (work == WorkType::kF32 && FitsFloat(s.a_dtype) && FitsFloat(s.b_dtype)) {
    if (equal && s.a_dtype == DType::kF32) return AddDirect<float>(s, n, PairType::kF32, t);
    if (equal && s.a_dtype == DType::kF16) return AddDirect<float>(s, n, PairType::kF16, t);
    if (equal && s.a_dtype == DType::kBF16) return AddDirect<float>(s, n, PairType::kBF16, t);
    return AddLoaded<float>(s, n, t);
  }
  if (equal && s.a_dtype == DType::kF64) return AddDirect<double>(s, n, PairType::kF64, t);
  const bool integers = IsExact(s.a_dtype) && IsExact(s.b_dtype);
  if (integers && std::max(ItemSize(s.a_dtype), ItemSize(s.b_dtype)) == 8) {
    return AddWideIntegers(s, n, t);
  }
  AddLoaded<double>(s, n, t);
}

}  // namespace

PairErrors PairErrorsOf(const std::byte* a, DType a_dtype, const std::byte* b, DType b_dtype,
                        size_t n, WorkType work) {
  assert(IsComplex(a_dtype) == IsComplex(b_dtype));
  const Sides sides{a, a_dtype, b, b_dtype};
  PairTotals totals;
  AddAll(sides, n, work, &totals);
  PairErrors e = totals.errors;
  e.dot = totals.dot.value();
  e.a_sumsq = totals.a_sumsq.value();
  e.b_sumsq = totals.b_sumsq.value();
  e.diff_sumsq = totals.diff_sumsq.value();
  const bool wide = RealOf(a_dtype) == DType::kF64 || RealOf(b_dtype) == DType::kF64;
  const bool diff_out = e.unequal > e.class_mismatch && OutOfRange(e.diff_sumsq);
  if (wide && n > 0 && (OutOfRange(e.a_sumsq) || OutOfRange(e.b_sumsq) || diff_out)) {
    Rescale(sides, n, &e);
  }
  return e;
}

void PairErrors::Merge(const PairErrors& later) {
  if (later.max_abs > max_abs) {
    max_abs = later.max_abs;
    max_abs_index = count + later.max_abs_index;
  }
  if (unequal == 0 && later.unequal > 0) first_unequal = count + later.first_unequal;
  const double a_before = a_scale, b_before = b_scale;
  MergeScaled(&a_sumsq, &a_scale, later.a_sumsq, later.a_scale);
  MergeScaled(&b_sumsq, &b_scale, later.b_sumsq, later.b_scale);
  MergeScaled(&diff_sumsq, &scale, later.diff_sumsq, later.scale);
  const auto rescaled = [this](double part, double a_part, double b_part) {
    return part == 0 ? 0 : part * (a_part / a_scale) * (b_part / b_scale);
  };
  dot = rescaled(dot, a_before, b_before) + rescaled(later.dot, later.a_scale, later.b_scale);
  count += later.count;
  class_mismatch += later.class_mismatch;
  both_nan += later.both_nan;
  both_inf += later.both_inf;
  max_rel = std::max(max_rel, later.max_rel);
  below_thousandth += later.below_thousandth;
  below_five_thousandths += later.below_five_thousandths;
  rel_nan += later.rel_nan;
  unequal += later.unequal;
}

}  // namespace msprobe::kernels
