#include "precheck/metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "precheck/load.h"
#include "tensor/convert.h"

namespace msprobe::precheck {
namespace {

constexpr size_t kBlock = 1024;

// Double to half with one rounding: through a float that is rounded to odd.
float RoundToHalf(double x) {
  float f = static_cast<float>(x);
  if (std::isfinite(x) && static_cast<double>(f) != x && std::isfinite(f)) {
    uint32_t bits = std::bit_cast<uint32_t>(f);
    if (std::fabs(static_cast<double>(f)) > std::fabs(x)) --bits;  // towards zero
    f = std::bit_cast<float>(bits | 1u);
  }
  return HalfToFloat(FloatToHalf(f));
}

// b rounded to the dtype of the device's array, as T.
template <class T>
T RoundLike(T b, DType device) {
  if (device == DType::kF16) return static_cast<T>(RoundToHalf(static_cast<double>(b)));
  if (device == DType::kF64) return b;
  return static_cast<T>(static_cast<float>(b));  // float32, and bfloat16 whose arrays are float32
}

enum class Class : uint8_t { kFinite, kNan, kPlus, kMinus };

template <class T>
Class ClassOf(T x) {
  if (std::isfinite(x)) return Class::kFinite;
  if (std::isnan(x)) return Class::kNan;
  return x > 0 ? Class::kPlus : Class::kMinus;
}

struct Constants {
  double eps, small_value, atol_benchmark, atol_absolute, rtol, bound, clip;
  bool ulp8 = false;  // 8-bit float output
  int ulp_bits = 23, ulp_min_exponent = -126;
  double ulp_limit = 32;
  bool ulp_double = true;  // computed in float64
};

Constants ConstantsFor(DType bench, DType device, SmallValues tables) {
  const std::string_view text = TorchName(device);
  Constants k;
  k.eps = device == DType::kBF16 ? 0x1p-8 : bench == DType::kF64 ? 0x1p-52 : 0x1p-23;
  k.small_value = SmallValue(text);
  k.atol_benchmark = SmallValueToleranceBenchmark(text, tables);
  k.atol_absolute = SmallValueToleranceAbsolute(text, tables);
  k.rtol = RelativeTolerance(text);
  k.bound = AccumulativeBound(text);
  k.clip = device == DType::kBF16 ? kBFloat16Limit : LargestFinite(device);
  k.ulp8 = IsFloat8(device);
  if (device == DType::kF16) {
    k.ulp_bits = 10;
    k.ulp_min_exponent = -14;
  } else if (device == DType::kBF16) {
    k.ulp_bits = 7;
  }
  if (device == DType::kF16 || device == DType::kBF16 || k.ulp8) k.ulp_limit = 1;
  k.ulp_double = !(device == DType::kF16 || device == DType::kBF16);
  return k;
}

// Error of d in units of the last place of b (ULP algorithm).
template <class T>
double UlpError(T b, T d, const Constants& k) {
  const T ab = std::fabs(b);
  if (std::isnan(b) || std::isinf(b)) return std::numeric_limits<double>::quiet_NaN();
  int exponent = 0;
  if (ab > 0) exponent = std::ilogb(ab);
  exponent = std::max(exponent, k.ulp_min_exponent);
  return static_cast<double>(std::fabs(std::ldexp(static_cast<T>(d - b), k.ulp_bits - exponent)));
}

// Signed error of 8-bit floats, whose mantissa narrows with the exponent.
double Ulp8Error(double x, double y) {
  const double tiny = std::ldexp(1.0, -1000);
  const double ex = std::max(std::log2(std::fabs(x) + tiny), -22.0);
  const double e = std::floor(ex);
  const double size = std::fabs(e);
  const int width = size <= 3 ? 3 : size <= 7 ? 2 : size <= 15 ? 1 : 0;
  if (width > 0) return std::ldexp(y - x, width - static_cast<int>(e));
  const auto sign = [](double v) { return v < 0 ? -1.0 : 1.0; };
  return sign(y) * std::log2(std::fabs(y) + tiny) - sign(x) * ex;
}

struct CosineSums {
  double dot = 0, dd = 0, bb = 0;
  void Add(double d, double b) {
    dot += d * b;
    dd += d * d;
    bb += b * b;
  }
  double Value() const {
    const double v = dot / (std::sqrt(dd) * std::sqrt(bb));
    return std::isnan(v) ? v : std::clamp(v, -1.0, 1.0);
  }
  bool Usable() const {
    return std::isfinite(dot) && std::isfinite(dd) && std::isfinite(bb) && dd > 1e-280 &&
           bb > 1e-280;
  }
};

template <class T>
class Pass {
 public:
  Pass(const TensorView& bench, const TensorView& device, double scale, SmallValues tables)
      : device_(device.dtype),
        k_(ConstantsFor(bench.dtype, device.dtype, tables)),
        scale_(static_cast<T>(scale)) {
    f_.single = sizeof(T) == sizeof(float);
  }

  void Add(T b, T d) {
    ++f_.count;
    const T c = RoundLike(b, device_);
    const T ae = std::fabs(d - b);
    const T abe = std::fabs(b) + static_cast<T>(k_.eps);
    const T rel = std::fabs(ae / abe);
    Common(b, d, c, ae, rel);
    Parts(b, d, c, ae, abe);
    if (d > c) ++above_;
    if (d < c) ++below_;
    const double u = Ulp(b, d);
    if (!(u <= max_ulp_)) max_ulp_ = std::isnan(max_ulp_) ? max_ulp_ : u;
    sum_ulp_ += u;
    if (u > k_.ulp_limit) ++f_.over_ulp;
    if (!(b == d)) ++f_.unequal;
  }

  // The largest magnitudes are known after one pass; only extreme ranges need another one for the
  // cosine.
  bool NeedsScaledCosine() const {
    return f_.masked == 0 && f_.class_mismatch == 0 && !cosine_.Usable();
  }
  double device_scale() const { return f_.max_abs_device; }
  double bench_scale() const { return f_.max_abs_bench; }
  void AddScaled(T b, T d) {
    scaled_.Add(static_cast<double>(d) / f_.max_abs_device,
                static_cast<double>(b) / f_.max_abs_bench);
  }

  Figures Finish() {
    const double n = static_cast<double>(f_.count);
    f_.cosine = scaled_.dd > 0 ? scaled_.Value() : all_finite_ ? cosine_.Value() : NaN();
    f_.masked_cosine = scaled_.dd > 0 ? scaled_.Value() : cosine_.Value();
    f_.max_abs_error = max_abs_;
    if (f_.count > 0) {
      const double left_out = static_cast<double>(f_.inf_nan + f_.small);
      const double mean = sum_square_ / n;
      f_.rmse = std::sqrt(mean * (n / (n - left_out + 0.0001) + 0.0001));
      const double up = static_cast<double>(above_);
      const double down = static_cast<double>(below_);
      f_.balance = std::fabs(up - down) / n;
      f_.mean_ulp = sum_ulp_ / n;
    }
    f_.max_ulp = max_ulp_;
    f_.mean_rel = f_.normal > 0 ? sum_rel_ / static_cast<double>(f_.normal) : 0;
    return f_;
  }

 private:
  double Ulp(T b, T d) const {
    if (k_.ulp8) return std::fabs(Ulp8Error(static_cast<double>(b), static_cast<double>(d)));
    if (k_.ulp_double) return UlpError(static_cast<double>(b), static_cast<double>(d), k_);
    return UlpError(b, d, k_);
  }

  static double NaN() { return std::numeric_limits<double>::quiet_NaN(); }

  void Common(T b, T d, T c, T ae, T rel) {
    const Class cb = device_ == DType::kBF16
                         ? ClassOf(BFloat16ToFloat(FloatToBFloat16(static_cast<float>(b))))
                         : ClassOf(c);
    const Class cd = ClassOf(d);
    const bool finite_pair = std::isfinite(b) && std::isfinite(d);
    if (!finite_pair) all_finite_ = false;
    const double mb = std::fabs(static_cast<double>(b));
    const double md = std::fabs(static_cast<double>(d));
    if (!(mb <= f_.max_abs_bench)) f_.max_abs_bench = mb;
    if (!(md <= f_.max_abs_device)) f_.max_abs_device = md;
    if (!(ae <= max_abs_)) max_abs_ = std::isnan(max_abs_) ? max_abs_ : static_cast<double>(ae);
    f_.below_hundredth += rel < static_cast<T>(0.01);
    f_.below_thousandth += rel < static_cast<T>(0.001);
    f_.below_ten_thousandth += rel < static_cast<T>(0.0001);
    if (cb != cd) {
      ++f_.class_mismatch;
      return;
    }
    if (cb != Class::kFinite) {
      ++f_.masked;
      return;
    }
    if (!finite_pair) return;
    cosine_.Add(static_cast<double>(d), static_cast<double>(b));
    f_.masked_max_abs_error = std::max(f_.masked_max_abs_error, static_cast<double>(ae));
    const T decisive = scale_ > 0 ? std::min(rel, ae / scale_) : rel;
    f_.masked_below_hundredth += decisive < static_cast<T>(0.01);
    f_.masked_below_thousandth += decisive < static_cast<T>(0.001);
    f_.masked_below_ten_thousandth += decisive < static_cast<T>(0.0001);
    f_.masked_below_wide += decisive < static_cast<T>(0x1p-6);
    f_.masked_below_rounding += decisive < static_cast<T>(0x1p-8);
  }

  void Parts(T b, T d, T c, T ae, T abe) {
    const bool finite = std::isfinite(c) && std::isfinite(d);
    const T ab = std::fabs(b);
    if (!finite) {
      ++f_.inf_nan;
      f_.inf_nan_errors += !Right(c, d, abe, k_.rtol);
      f_.acc_inf_nan_errors += !Right(c, d, abe, k_.bound);
      return;
    }
    if (ab <= static_cast<T>(1)) {
      ++f_.acc_small;
      f_.acc_small_errors += ae > static_cast<T>(k_.bound);
    } else {
      ++f_.acc_normal;
      f_.acc_normal_errors += ae / abe > static_cast<T>(k_.bound);
    }
    if (ab <= static_cast<T>(k_.small_value)) {
      ++f_.small;
      f_.small_errors += ae > static_cast<T>(k_.atol_benchmark);
      f_.small_errors_absolute += ae > static_cast<T>(k_.atol_absolute);
      return;
    }
    ++f_.normal;
    const T r = ae / abe;
    f_.normal_errors += r > static_cast<T>(k_.rtol);
    f_.max_rel = std::max(f_.max_rel, static_cast<double>(r));
    sum_rel_ += static_cast<double>(r);
    sum_square_ += static_cast<double>(static_cast<T>(ae * ae));
  }

  // A non-finite element is right when the clipped values agree, or both are NaN.
  bool Right(T c, T d, T abe, double tolerance) const {
    if (std::isnan(c) && std::isnan(d)) return true;
    const T limit = static_cast<T>(k_.clip);
    T difference = std::fabs(std::clamp(d, -limit, limit) - std::clamp(c, -limit, limit));
    if (std::isnan(c) || std::isnan(d)) return false;
    difference =
        RoundLike(difference, device_);  // the difference of two clipped values may overflow there
    return difference / abe <= static_cast<T>(tolerance);
  }

  DType device_;
  Constants k_;
  T scale_;
  Figures f_;
  CosineSums cosine_, scaled_;
  bool all_finite_ = true;
  double max_abs_ = 0, sum_rel_ = 0, sum_square_ = 0,
         max_ulp_ = -std::numeric_limits<double>::infinity(), sum_ulp_ = 0;
  uint64_t above_ = 0, below_ = 0;
};

template <class T>
Figures Run(const TensorView& bench, const TensorView& device, double scale, SmallValues tables) {
  Pass<T> pass(bench, device, scale, tables);
  const size_t n = static_cast<size_t>(bench.num_elements());
  std::array<T, kBlock> b;
  std::array<T, kBlock> d;
  const auto each = [&](auto&& add) {
    for (size_t first = 0; first < n; first += kBlock) {
      const size_t m = std::min(kBlock, n - first);
      LoadFloats(bench, first, m, b.data());
      LoadFloats(device, first, m, d.data());
      for (size_t i = 0; i < m; ++i) add(b[i], d[i]);
    }
  };
  each([&](T x, T y) { pass.Add(x, y); });
  if (pass.NeedsScaledCosine() && pass.device_scale() > 0 && pass.bench_scale() > 0 &&
      std::isfinite(pass.device_scale()) && std::isfinite(pass.bench_scale())) {
    each([&](T x, T y) { pass.AddScaled(x, y); });
  }
  return pass.Finish();
}

// Value of an exact element in 128 bits.
__extension__ typedef __int128 Wide;

Wide ExactAt(const TensorView& view, size_t i) {
  const std::byte* p = view.data + i * ItemSize(view.dtype);
  const auto read = [&]<class S>(S) {
    S v;
    std::memcpy(&v, p, sizeof(S));
    return static_cast<Wide>(v);
  };
  switch (view.dtype) {
    case DType::kBool:
      return read(uint8_t{}) != 0 ? 1 : 0;
    case DType::kU8:
      return read(uint8_t{});
    case DType::kI8:
      return read(int8_t{});
    case DType::kU16:
      return read(uint16_t{});
    case DType::kI16:
      return read(int16_t{});
    case DType::kU32:
      return read(uint32_t{});
    case DType::kI32:
      return read(int32_t{});
    case DType::kU64:
      return read(uint64_t{});
    case DType::kI64:
      return read(int64_t{});
    default:
      return 0;
  }
}

}  // namespace

Figures FiguresOf(const TensorView& bench, const TensorView& device, double scale,
                  SmallValues tables) {
  const bool wide =
      bench.dtype == DType::kF64 || device.dtype == DType::kF64 || IsFloat8(device.dtype);
  return wide ? Run<double>(bench, device, scale, tables)
              : Run<float>(bench, device, scale, tables);
}

double RootMeanSquare(const TensorView& view) {
  std::array<double, kBlock> block;
  const size_t n = static_cast<size_t>(view.num_elements());
  double squares = 0;
  uint64_t finite = 0;
  for (size_t first = 0; first < n; first += kBlock) {
    const size_t m = std::min(kBlock, n - first);
    LoadFloats(view, first, m, block.data());
    for (size_t i = 0; i < m; ++i) {
      if (!std::isfinite(block[i])) continue;
      squares += block[i] * block[i];
      ++finite;
    }
  }
  const double rms = finite == 0 ? 0 : std::sqrt(squares / static_cast<double>(finite));
  return std::isfinite(rms) ? rms : 0;
}

ExactFigures ExactFiguresOf(const TensorView& bench, const TensorView& device) {
  ExactFigures f;
  f.count = static_cast<uint64_t>(bench.num_elements());
  for (size_t i = 0; i < f.count; ++i) {
    const Wide a = ExactAt(bench, i);
    const Wide b = ExactAt(device, i);
    if (a == b) continue;
    ++f.unequal;
    const Wide difference = a > b ? a - b : b - a;
    const Wide limit = static_cast<Wide>(UINT64_MAX);
    f.max_abs_difference =
        std::max(f.max_abs_difference, static_cast<uint64_t>(std::min(difference, limit)));
  }
  return f;
}

uint64_t ZerosOf(const TensorView& view) {
  uint64_t zeros = 0;
  const size_t n = static_cast<size_t>(view.num_elements());
  if (IsExact(view.dtype)) {
    for (size_t i = 0; i < n; ++i) zeros += ExactAt(view, i) == 0;
    return zeros;
  }
  std::array<double, kBlock> block;
  for (size_t first = 0; first < n; first += kBlock) {
    const size_t m = std::min(kBlock, n - first);
    LoadFloats(view, first, m, block.data());
    for (size_t i = 0; i < m; ++i) zeros += block[i] == 0;
  }
  return zeros;
}

}  // namespace msprobe::precheck
