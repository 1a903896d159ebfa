#include "precheck/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "precheck/metrics.h"

namespace msprobe::precheck {
namespace {

// Classes of dtypes that can be compared with one another.
enum class Group : uint8_t { kFloat, kBoolOrByte, kInteger, kComplex };

Group GroupOf(DType t) {
  if (IsComplex(t)) return Group::kComplex;
  if (IsFloat(t)) return Group::kFloat;
  if (t == DType::kBool || t == DType::kU8) return Group::kBoolOrByte;
  return Group::kInteger;
}

bool SixteenBit(std::string_view dtype) {
  return dtype == "torch.float16" || dtype == "torch.bfloat16";
}

void Line(std::string& message, std::string_view text) {
  if (!message.empty()) message += '\n';
  message += text;
}

double Share(uint64_t k, uint64_t n) {
  return n == 0 ? 1 : static_cast<double>(k) / static_cast<double>(n);
}

void FillBenchmark(const Figures& f, DetailsRow& row) {
  row.SetDouble(Column::kBalance, f.balance);
  row.SetDouble(Column::kRmse, f.rmse);
  row.SetShare(Column::kSmallValue, f.small_errors, f.small);
  row.SetSingleOrDouble(Column::kMaxRel, f.max_rel, f.single);
  row.SetSingleOrDouble(Column::kMeanRel, f.mean_rel, f.single);
  row.SetShare(Column::kInfNan, f.class_mismatch, f.class_mismatch + f.masked);
}

void FillAbsolute(const Figures& f, DetailsRow& row) {
  row.SetShare(Column::kInfNan, f.inf_nan_errors, f.inf_nan);
  row.SetShare(Column::kRelativeRate, f.normal_errors, f.normal);
  row.SetShare(Column::kAbsoluteRate, f.small_errors_absolute, f.small);
}

void FillAccumulative(const Figures& f, DetailsRow& row) {
  row.SetDouble(Column::kBalance, f.balance);
  row.SetShare(Column::kInfNan, f.acc_inf_nan_errors, f.inf_nan);
  row.SetShare(Column::kRelativeRate, f.acc_normal_errors, f.acc_normal);
  row.SetShare(Column::kAbsoluteRate, f.acc_small_errors, f.acc_small);
}

void FillUlp(const Figures& f, bool single, DetailsRow& row) {
  row.SetSingleOrDouble(Column::kMaxUlp, f.max_ulp, single);
  row.SetSingleOrDouble(Column::kMeanUlp, f.mean_ulp, single);
  row.SetDouble(Column::kUlpShare, Share(f.over_ulp, f.count));
}

void FillAlgorithm(const OutputPair& pair, const Figures& f, Standard standard, DetailsRow& row) {
  switch (ChooseAlgorithm(pair.api, pair.device_dtype, pair.float8_input, standard)) {
    case Algorithm::kBenchmark:
      FillBenchmark(f, row);
      return;
    case Algorithm::kAbsoluteThreshold:
      FillAbsolute(f, row);
      return;
    case Algorithm::kBinaryConsistency:
      row.SetDouble(Column::kErrorRate, Share(f.unequal, f.count));
      return;
    case Algorithm::kUlp:
      FillUlp(f, SixteenBit(pair.device_dtype) && f.single, row);
      return;
    case Algorithm::kThousandth:
      row.SetDouble(Column::kThousandth, Share(f.below_thousandth, f.count));
      return;
    case Algorithm::kAccumulativeError:
      FillAccumulative(f, row);
      return;
  }
}

// Cosine as a cell; false when it speaks against the pair by itself.
bool JudgeCosine(const Figures& f, DetailsRow& row) {
  const bool device_zero = f.max_abs_device <= kCosineZero;
  const bool bench_zero = f.max_abs_bench <= kCosineZero;
  if (f.count == 1) {
    Line(row.message, "one element: no cosine");
    return true;
  }
  if (device_zero && bench_zero) {
    Line(row.message, "both sides are zero: no cosine");
    return true;
  }
  if (device_zero || bench_zero) {
    Line(row.message,
         device_zero ? "only the device result is zero" : "only the reference is zero");
    return false;
  }
  row.SetDouble(Column::kCosine, f.cosine);
  if (std::isnan(f.cosine))
    Line(row.message, "NaN or infinity present: no cosine over all elements");
  return !(f.masked_cosine <= kCosineAbove);  // NaN: nothing but masked elements
}

Status Decide(DetailsRow& row, Status status, std::string_view why) {
  Line(row.message, fmt::format("{}: {}", why, StatusText(status, Standard::kNew)));
  return status;
}

// The steps behind the cosine. Shares for the decision are taken with agreeing NaN and infinity
// counted as right.
Status JudgeShares(const OutputPair& pair, const Figures& f, DetailsRow& row) {
  const uint64_t n = f.count;
  const bool brain = pair.device_dtype == "torch.bfloat16";
  if (SixteenBit(pair.device_dtype)) {
    row.SetDouble(Column::kHundredth, Share(f.below_hundredth, n));
    const double hundredth =
        Share((brain ? f.masked_below_wide : f.masked_below_hundredth) + f.masked, n);
    if (!(hundredth > 0.99))
      return Decide(row, Status::kError,
                    brain ? "share below 2^-6 not above 0.99" : "share below 1 % not above 0.99");
  }
  row.SetDouble(Column::kThousandth, Share(f.below_thousandth, n));
  const double thousandth =
      Share((brain ? f.masked_below_rounding : f.masked_below_thousandth) + f.masked, n);
  if (SixteenBit(pair.device_dtype)) {
    const std::string_view limit = brain ? "2^-8" : "0.1 %";
    if (thousandth > 0.999)
      return Decide(row, Status::kPass, fmt::format("share below {} above 0.999", limit));
    return Decide(row, Status::kWarning, fmt::format("share below {} not above 0.999", limit));
  }
  row.SetDouble(Column::kTenThousandth, Share(f.below_ten_thousandth, n));
  if (!(thousandth > 0.999))
    return Decide(row, Status::kError, "share below 0.1 % not above 0.999");
  if (!(Share(f.masked_below_ten_thousandth + f.masked, n) > 0.9999))
    return Decide(row, Status::kWarning, "share below 0.01 % not above 0.9999");
  return Decide(row, Status::kPass, "share below 0.01 % above 0.9999");
}

void JudgeFloat(const OutputPair& pair, Standard standard, DetailsRow& row) {
  // A 16-bit gradient that adds up rounded terms cannot be right to a share of its own small
  // elements.
  const bool summed = pair.gradient && SixteenBit(pair.device_dtype);
  const Figures f = FiguresOf(pair.bench, pair.device, summed ? RootMeanSquare(pair.bench) : 0,
                              pair.small_values);
  if (HasErrorMetrics(pair.device_dtype)) {
    FillAlgorithm(pair, f, standard, row);
  } else {
    Line(row.message, fmt::format("no further metrics for {}", pair.device_dtype));
  }
  const bool cosine_ok = JudgeCosine(f, row);
  // The old spelling stops at a cosine that is NaN; its rows carry nothing behind it.
  const MetricCell& cosine = row[Column::kCosine];
  const bool stops_at_nan = standard == Standard::kOld && cosine.kind != MetricCell::Kind::kBlank &&
                            std::isnan(cosine.value);
  if (f.class_mismatch > 0) {
    row.status = Decide(row, Status::kError,
                        fmt::format("NaN or infinity differ at {} elements", f.class_mismatch));
    if (stops_at_nan || !cosine_ok) return;
    row.SetSingleOrDouble(Column::kMaxAbs, f.max_abs_error, f.single);
    if (f.max_abs_error < kMaxAbsBelow) return;
    std::string kept = row.message;
    JudgeShares(pair, f, row);
    row.message = std::move(kept);
    return;
  }
  if (!cosine_ok) {
    row.status = Decide(row, Status::kError, "cosine not above 0.99");
    row.is_relative = true;
    return;
  }
  if (!stops_at_nan) row.SetSingleOrDouble(Column::kMaxAbs, f.max_abs_error, f.single);
  if (f.masked_max_abs_error < kMaxAbsBelow) {
    row.status = Decide(row, Status::kPass, "maximum absolute error below 0.001");
    return;
  }
  row.status = JudgeShares(pair, f, row);
  row.is_relative = true;
}

void JudgeExact(const OutputPair& pair, Standard standard, DetailsRow& row) {
  const ExactFigures f = ExactFiguresOf(pair.bench, pair.device);
  if (standard == Standard::kNew && IsQuantized(pair.api)) {
    row.SetInteger(Column::kMaxAbs, f.max_abs_difference);
    row.status =
        Decide(row, f.max_abs_difference <= 1 ? Status::kPass : Status::kError,
               fmt::format("largest difference of quantized values {}", f.max_abs_difference));
    return;
  }
  row.SetDouble(Column::kErrorRate, Share(f.unequal, f.count));
  row.status =
      Decide(row, f.unequal == 0 ? Status::kPass : Status::kError,
             fmt::format("{}: {} of {} elements differ", pair.device_dtype, f.unequal, f.count));
}

// Complex values are judged as twice as many real ones.
OutputPair Parts(const OutputPair& pair, Shape& bench_shape, Shape& device_shape) {
  OutputPair parts = pair;
  bench_shape = {2 * pair.bench.num_elements()};
  device_shape = {2 * pair.device.num_elements()};
  parts.bench.dtype = RealOf(pair.bench.dtype);
  parts.device.dtype = RealOf(pair.device.dtype);
  parts.bench.shape = bench_shape;
  parts.device.shape = device_shape;
  parts.bench.strides = {};
  parts.device.strides = {};
  return parts;
}

}  // namespace

std::string TupleText(std::span<const int64_t> shape) {
  std::string out = "(";
  for (size_t k = 0; k < shape.size(); ++k) {
    if (k > 0) out += ' ';
    out += fmt::format("{}", shape[k]);
    if (k + 1 < shape.size() || shape.size() == 1) out += ',';
  }
  return out + ")";
}

void JudgeOutput(const OutputPair& pair, Standard standard, DetailsRow& row) {
  row.SetText(Column::kBenchDtype, pair.bench_dtype);
  row.SetText(Column::kDeviceDtype, pair.device_dtype);
  row.SetText(Column::kShape, TupleText(pair.device.shape));
  if (!std::equal(pair.bench.shape.begin(), pair.bench.shape.end(), pair.device.shape.begin(),
                  pair.device.shape.end())) {
    row.status = Decide(row, Status::kError,
                        fmt::format("shapes differ, reference {} and device {}",
                                    TupleText(pair.bench.shape), TupleText(pair.device.shape)));
    return;
  }
  const Group group = GroupOf(pair.bench.dtype);
  if (group != GroupOf(pair.device.dtype)) {
    row.status = Decide(
        row, Status::kError,
        fmt::format("dtypes {} and {} cannot be compared", pair.bench_dtype, pair.device_dtype));
    return;
  }
  if (pair.device.num_elements() == 0) {
    row.status = standard == Standard::kNew ? Status::kSkip : Status::kError;
    Line(row.message, "no elements");
    return;
  }
  if (group == Group::kFloat) {
    JudgeFloat(pair, standard, row);
  } else if (group == Group::kComplex) {
    Shape bench_shape;
    Shape device_shape;
    JudgeFloat(Parts(pair, bench_shape, device_shape), standard, row);
  } else {
    JudgeExact(pair, standard, row);
  }
}

void JudgeDropout(const OutputPair& pair, DetailsRow& row) {
  row.SetText(Column::kBenchDtype, pair.bench_dtype);
  row.SetText(Column::kDeviceDtype, pair.device_dtype);
  row.SetText(Column::kShape, TupleText(pair.device.shape));
  const uint64_t n = static_cast<uint64_t>(pair.device.num_elements());
  const double here = Share(ZerosOf(pair.device), std::max<uint64_t>(n, 1));
  const double there = Share(ZerosOf(pair.bench), std::max<uint64_t>(n, 1));
  const std::string shares =
      fmt::format("share of zeros: device {:.6g}, reference {:.6g}", here, there);
  if (n < 100) {
    row.status = Decide(row, Status::kPass, fmt::format("{}; fewer than 100 elements", shares));
    return;
  }
  row.status = Decide(row, std::fabs(here - there) < 0.1 ? Status::kPass : Status::kError, shares);
}

}  // namespace msprobe::precheck
