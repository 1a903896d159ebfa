// Every vector target of the kernels against plain loops in long double.
#include <hwy/highway.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "fuzz/target.h"
#include "kernels/checksum.h"
#include "kernels/load.h"
#include "kernels/pair_errors.h"
#include "kernels/sketch.h"
#include "kernels/stats.h"

namespace msprobe::fuzz {
namespace {

constexpr DType kFloats[] = {DType::kF16,       DType::kBF16,       DType::kF32,
                             DType::kF64,       DType::kF8E4M3FN,   DType::kF8E5M2,
                             DType::kF8E8M0FNU, DType::kF8E4M3FNUZ, DType::kF8E5M2FNUZ};
constexpr DType kIntegers[] = {DType::kU8,  DType::kI8,  DType::kU16, DType::kI16,
                               DType::kU32, DType::kI32, DType::kU64, DType::kI64};
// A block of the kernels is 1024 elements: short inputs are repeated to cross its end.
constexpr size_t kRepeats = 64;

// The first bytes choose dtype, alignment and repetition; the others are elements.
struct Elements {
  std::vector<std::byte> bytes;  // with `shift` bytes before the first element
  size_t shift = 0, n = 0;
  DType dtype = DType::kF32;
  const std::byte* data() const { return bytes.data() + shift; }
};

Elements Take(Bytes input, size_t choice, std::span<const DType> dtypes) {
  Elements e;
  if (input.size() < choice + 2) return e;
  const auto first = static_cast<uint8_t>(input[choice]);
  e.dtype = dtypes[first % dtypes.size()];
  const auto second = static_cast<uint8_t>(input[choice + 1]);
  e.shift = second % 8;
  const Bytes rest = input.subspan(choice + 2);
  e.bytes.resize(e.shift);
  const size_t repeats = 1 + second / 8 % 4 * (kRepeats / 4);
  for (size_t i = 0; i < repeats; ++i) e.bytes.insert(e.bytes.end(), rest.begin(), rest.end());
  e.n = (e.bytes.size() - e.shift) / ItemSize(e.dtype);
  return e;
}

std::vector<double> Values(const Elements& e) {
  std::vector<double> values(e.n);
  kernels::LoadDoubles(e.data(), 1, e.n, e.dtype, values.data());
  return values;
}

template <class Body>
void OnEveryTarget(const Body& body) {
  static const std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  for (const int64_t target : targets) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

bool Near(long double x, long double expected, long double scale) {
  return std::fabs(x - expected) <= 1e-12L * scale;
}

void FloatStats(Bytes input) {
  const Elements e = Take(input, 0, kFloats);
  kernels::FloatStats expected;
  long double sum = 0, magnitude = 0, sumsq = 0;
  expected.min = std::numeric_limits<double>::infinity();
  expected.max = -expected.min;
  for (const double x : Values(e)) {
    expected.nan += std::isnan(x);
    expected.pos_inf += x == std::numeric_limits<double>::infinity();
    expected.neg_inf += x == -std::numeric_limits<double>::infinity();
    if (!std::isnan(x)) {
      expected.min = std::min(expected.min, x);
      expected.max = std::max(expected.max, x);
    }
    if (!std::isfinite(x)) continue;
    sum += x;
    magnitude += std::fabs(static_cast<long double>(x));
    sumsq += static_cast<long double>(x) * x;
  }
  OnEveryTarget([&] {
    const kernels::FloatStats s = kernels::FloatStatsOf(e.data(), e.n, 1, e.dtype);
    Check(s.count == e.n && s.nan == expected.nan && s.pos_inf == expected.pos_inf &&
              s.neg_inf == expected.neg_inf,
          "counts of a float tensor");
    Check(s.min == expected.min && s.max == expected.max, "minimum or maximum of a float tensor");
    Check(Near(static_cast<long double>(s.sum) * s.sum_scale, sum, magnitude), "sum");
    const long double scale = s.scale;
    Check(Near(s.sumsq * scale * scale, sumsq, sumsq), "sum of squares");
  });
}

void IntStats(Bytes input) {
  const Elements e = Take(input, 0, kIntegers);
  __extension__ __int128 sum = 0, least = 0, most = 0;
  for (size_t i = 0; i < e.n; ++i) {
    __extension__ __int128 value = 0;
    const size_t item = ItemSize(e.dtype);
    uint64_t bits = 0;
    std::memcpy(&bits, e.data() + i * item, item);
    const bool is_signed = e.dtype == DType::kI8 || e.dtype == DType::kI16 ||
                           e.dtype == DType::kI32 || e.dtype == DType::kI64;
    const unsigned unused = static_cast<unsigned>(64 - 8 * item);
    value =
        is_signed ? static_cast<int64_t>(bits << unused) >> unused : static_cast<__int128>(bits);
    sum += value;
    least = i == 0 ? value : std::min(least, value);
    most = i == 0 ? value : std::max(most, value);
  }
  OnEveryTarget([&] {
    const kernels::IntStats s = kernels::IntStatsOf(e.data(), e.n, 1, e.dtype);
    Check(s.count == e.n && s.sum == sum, "count or sum of an integer tensor");
    Check(s.min == static_cast<int64_t>(least) && s.max == static_cast<int64_t>(most),
          "minimum or maximum of an integer tensor");
  });
}

// The exact parts of PairErrors, and sums in long double.
struct ExpectedPair {
  kernels::PairErrors errors;
  long double dot = 0, aa = 0, bb = 0, dd = 0;
};

template <class W>
void AddRelative(double a, double b, kernels::PairErrors& e) {
  auto x = static_cast<W>(a), y = static_cast<W>(b);
  if (y == 0) {
    x += std::numeric_limits<W>::epsilon();
    y += std::numeric_limits<W>::epsilon();
  }
  const W rel = std::fabs((x - y) / y);
  e.max_rel = std::max(e.max_rel, static_cast<double>(rel));
  e.below_thousandth += rel < static_cast<W>(0.001);
  e.below_five_thousandths += rel < static_cast<W>(0.005);
}

ExpectedPair ErrorsOf(std::vector<double> a, std::vector<double> b, bool narrow) {
  ExpectedPair out;
  kernels::PairErrors& e = out.errors;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) {
      const bool both_nan = std::isnan(a[i]) && std::isnan(b[i]);
      const bool both_inf = a[i] == b[i];
      e.both_nan += both_nan;
      e.both_inf += both_inf;
      if (!both_nan && !both_inf) {
        if (e.unequal++ == 0) e.first_unequal = i;
        ++e.class_mismatch;
        continue;
      }
      a[i] = b[i] = 0;
    }
    narrow ? AddRelative<float>(a[i], b[i], e) : AddRelative<double>(a[i], b[i], e);
    const double diff = a[i] - b[i];
    if (std::fabs(diff) > e.max_abs) {
      e.max_abs = std::fabs(diff);
      e.max_abs_index = i;
    }
    if (a[i] != b[i] && e.unequal++ == 0) e.first_unequal = i;
    const long double x = a[i], y = b[i];
    out.dot += x * y;
    out.aa += x * x;
    out.bb += y * y;
    out.dd += (x - y) * (x - y);
  }
  return out;
}

void Pair(Bytes input) {
  if (input.size() < 4) return;
  const size_t half = 4 + (input.size() - 4) / 2;
  std::vector<std::byte> second(input.begin(), input.begin() + 4);
  second.insert(second.end(), input.begin() + static_cast<ptrdiff_t>(half), input.end());
  const Elements a = Take(input.first(half), 2, kFloats);
  const Elements b = Take(second, 0, kFloats);
  const size_t n = std::min(a.n, b.n);
  std::vector<double> va = Values(a), vb = Values(b);
  va.resize(n);
  vb.resize(n);
  const bool narrow = a.dtype != DType::kF64 && b.dtype != DType::kF64;
  const auto work = narrow ? kernels::WorkType::kF32 : kernels::WorkType::kF64;
  const ExpectedPair x = ErrorsOf(va, vb, narrow);
  OnEveryTarget([&] {
    const kernels::PairErrors e =
        kernels::PairErrorsOf(a.data(), a.dtype, b.data(), b.dtype, n, work);
    Check(e.count == n && e.both_nan == x.errors.both_nan && e.both_inf == x.errors.both_inf &&
              e.class_mismatch == x.errors.class_mismatch,
          "counts of a pair");
    Check(e.unequal == x.errors.unequal && e.first_unequal == x.errors.first_unequal,
          "unequal elements of a pair");
    Check(e.max_abs == x.errors.max_abs && e.max_abs_index == x.errors.max_abs_index,
          "largest difference of a pair");
    Check(e.max_rel == x.errors.max_rel && e.below_thousandth == x.errors.below_thousandth &&
              e.below_five_thousandths == x.errors.below_five_thousandths,
          "relative errors of a pair");
    const long double sa = e.a_scale, sb = e.b_scale, sd = e.scale;
    Check(Near(e.a_sumsq * sa * sa, x.aa, x.aa) && Near(e.b_sumsq * sb * sb, x.bb, x.bb),
          "sums of squares of a pair");
    Check(Near(e.diff_sumsq * sd * sd, x.dd, x.dd), "sum of squared differences of a pair");
    Check(Near(e.dot * sa * sb, x.dot, std::sqrt(x.aa) * std::sqrt(x.bb)), "product of a pair");
  });
}

uint64_t Finalise(uint64_t x) {  // of SplitMix64
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
  x = (x ^ x >> 27) * 0x94D049BB133111EB;
  return x ^ x >> 31;
}
uint64_t MixOf(uint64_t x) { return Finalise(x + 0x9E3779B97F4A7C15); }

// The definition in kernels/checksum.h, one element at a time.
uint64_t HashOf(Bytes input, size_t item, uint64_t first) {
  uint64_t total = 0;
  for (size_t i = 0; i < input.size() / item; ++i) {
    for (size_t half = 0; half < item; half += 8) {
      uint64_t bits = 0;
      std::memcpy(&bits, input.data() + i * item + half, std::min<size_t>(item, 8));
      const uint64_t index = first + i + 1 + (uint64_t{half / 8} << 63);
      total += Finalise(bits + index * 0x9E3779B97F4A7C15);
    }
  }
  return total;
}

void Checksum(Bytes input) {
  const auto* bytes = reinterpret_cast<const Bytef*>(input.data());
  const auto crc = crc32(crc32(0, nullptr, 0), bytes, static_cast<uInt>(input.size()));
  Check(kernels::Crc32(0, input.data(), input.size()) == crc, "CRC-32");
  const size_t cut = input.size() / 3;
  const uint32_t part = kernels::Crc32(0, input.data(), cut);
  Check(kernels::Crc32(part, input.data() + cut, input.size() - cut) == crc, "CRC-32 in two parts");

  uint64_t words = 0;
  for (size_t i = 0; i < input.size(); ++i) {
    words ^= static_cast<uint64_t>(input[i]) << (8 * (i % 8));
  }
  Check(kernels::Xor64(input.data(), input.size()) == words, "exclusive or of words");

  for (const size_t item : {size_t{1}, size_t{2}, size_t{4}, size_t{8}, size_t{16}}) {
    const size_t n = input.size() / item;
    const uint64_t first = n == 0 ? 0 : Finalise(n) >> static_cast<uint8_t>(input[0]) % 64;
    const uint64_t expected = HashOf(input, item, first);
    OnEveryTarget([&] {
      const uint64_t whole = kernels::Hash64(input.data(), n, item, first);
      Check(whole == expected, "a hash is not its definition");
      const size_t k = n / 2;
      const uint64_t parts = kernels::Hash64(input.data(), k, item, first) +
                             kernels::Hash64(input.data() + k * item, n - k, item, first + k);
      Check(whole == parts, "parts of a hash do not add up");
    });
  }
}

// Slots of a sketch by the formulas, in long double, and the sum of magnitudes of each.
struct ExpectedSketch {
  std::vector<long double> sums, magnitudes;
  kernels::SketchLeftOut left_out;
};

ExpectedSketch SketchOf(const std::vector<double>& values, uint64_t first, uint32_t k,
                        uint64_t seed) {
  ExpectedSketch out{std::vector<long double>(k), std::vector<long double>(k), {}};
  for (size_t n = 0; n < values.size(); ++n) {
    const uint64_t i = first + n;
    const uint64_t slot = (i % k + MixOf(i / k + seed + 77) % k) % k;
    const bool minus = (MixOf((i / 64) ^ (seed * 0x5851F42D4C957F2D)) >> (i % 64) & 1) != 0;
    const long double x = values[n];
    if (std::isnan(x)) {
      ++out.left_out.nan;
    } else if (std::isinf(x)) {
      ++out.left_out.inf;
    } else if (std::fabs(values[n]) >= 1e30) {
      ++out.left_out.huge;
    } else {
      out.sums[slot] += minus ? -x : x;
      out.magnitudes[slot] += std::fabs(x);
    }
  }
  return out;
}

// The first bytes choose k, seed, place in the whole and whether the elements are floats.
void Sketch(Bytes input) {
  if (input.size() < 6) return;
  const auto at = [&](size_t i) { return static_cast<uint8_t>(input[i]); };
  const uint32_t k = 64u * (1 + at(0) % 8);
  const uint64_t seed = at(1), first = MixOf(at(2)) >> at(3) % 64;
  const std::span<const DType> dtypes =
      at(3) < 192 ? std::span<const DType>(kFloats) : std::span<const DType>(kIntegers);
  const Elements e = Take(input, 4, dtypes);
  const ExpectedSketch x = SketchOf(Values(e), first, k, seed);
  std::vector<double> reference;
  OnEveryTarget([&] {
    std::vector<double> sums(2 * size_t{k}), parts(2 * size_t{k});
    kernels::SketchLeftOut left_out, unused;
    kernels::AddToSketch(e.data(), e.n, e.dtype, first, k, seed, sums.data(), &left_out);
    const size_t cut = e.n / 3, item = ItemSize(e.dtype);
    kernels::AddToSketch(e.data(), cut, e.dtype, first, k, seed, parts.data(), &unused);
    kernels::AddToSketch(e.data() + cut * item, e.n - cut, e.dtype, first + cut, k, seed,
                         parts.data(), &unused);
    Check(sums == parts, "parts of a sketch do not add up");
    if (reference.empty()) reference = sums;
    Check(sums == reference, "sketches of two vector targets");
    kernels::FoldSketch(k, sums.data());
    for (uint32_t j = 0; j < k; ++j) {
      Check(Near(sums[j], x.sums[j], x.magnitudes[j]), "slot of a sketch");
    }
    Check(left_out.nan == x.left_out.nan && left_out.inf == x.left_out.inf &&
              left_out.huge == x.left_out.huge,
          "elements that a sketch leaves out");
  });
}

constexpr Target kTargets[] = {{"float_stats", FloatStats},
                               {"int_stats", IntStats},
                               {"pair", Pair},
                               {"checksum", Checksum},
                               {"sketch_kernel", Sketch}};

}  // namespace

std::span<const Target> KernelTargets() { return kTargets; }

}  // namespace msprobe::fuzz
