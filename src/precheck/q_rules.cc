#include "precheck/q_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "precheck/load.h"
#include "precheck/metrics.h"

namespace msprobe::precheck {
namespace {

constexpr size_t kBlock = 1024;

struct Limits {
  double unit;          // unit roundoff
  double least_normal;  // smallest normal number
  double alone, per_root_term;
  double least_max, least_rms;  // with a baseline
};

bool LimitsFor(DType dtype, Limits& out) {
  switch (dtype) {
    case DType::kF32:
      out = {0x1p-24, 0x1p-126, 256, 16, 16, 8};
      return true;
    case DType::kF16:
      out = {0x1p-11, 0x1p-14, 32, 2, 4, 0.5};
      return true;
    case DType::kBF16:
      out = {0x1p-8, 0x1p-126, 32, 2, 4, 0.5};
      return true;
    default:
      return false;
  }
}

template <class Fn>
void ForEachTriple(const TensorView& bench, const TensorView& device, const TensorView* baseline,
                   Fn fn) {
  std::array<double, kBlock> b;
  std::array<double, kBlock> d;
  std::array<double, kBlock> t{};
  const size_t n = static_cast<size_t>(bench.num_elements());
  for (size_t first = 0; first < n; first += kBlock) {
    const size_t m = std::min(kBlock, n - first);
    LoadFloats(bench, first, m, b.data());
    LoadFloats(device, first, m, d.data());
    if (baseline != nullptr) LoadFloats(*baseline, first, m, t.data());
    for (size_t i = 0; i < m; ++i) fn(b[i], d[i], t[i]);
  }
}

// Errors of one side in units of u (|b| + s).
struct Spread {
  double largest = 0, squares = 0;
  uint64_t count = 0;
  void Add(double error, double unit) {
    const double q = error / unit;
    largest = std::max(largest, q);
    squares += q * q;
    ++count;
  }
  double rms() const { return count == 0 ? 0 : std::sqrt(squares / static_cast<double>(count)); }
};

struct Findings {
  Spread device, baseline;
  uint64_t flushed = 0, flushed_baseline = 0;
};

Findings Measure(const OutputPair& pair, const QContext& context, const Limits& limits) {
  double scale = RootMeanSquare(pair.bench);
  if (std::isfinite(context.scale)) scale = std::max(scale, context.scale);
  Findings out;
  // Half a step between subnormals: no error below it can be avoided.
  const double least = limits.least_normal * limits.unit;
  ForEachTriple(pair.bench, pair.device, context.baseline, [&](double b, double d, double t) {
    const double ab = std::fabs(b);
    if (!std::isfinite(b)) return;
    const double unit = limits.unit * (ab + scale) + least;
    // A subnormal that became zero is counted by itself: accelerators do so by design.
    const bool subnormal = ab < limits.least_normal && ab > 2 * least;
    const auto add = [&](double x, Spread& spread, uint64_t& flushed) {
      if (subnormal && x == 0) {
        ++flushed;
      } else if (std::isfinite(x)) {
        spread.Add(std::fabs(x - b), unit);
      }
    };
    add(d, out.device, out.flushed);
    if (context.baseline != nullptr) add(t, out.baseline, out.flushed_baseline);
  });
  return out;
}

void Worsen(DetailsRow& row, Status status, const std::string& finding) {
  if (!row.message.empty()) row.message += '\n';
  row.message += finding;
  row.message += status == Status::kError ? ": error" : ": warning";
  if (status == Status::kError || row.status == Status::kPass) row.status = status;
}

}  // namespace

void ApplyQRules(const OutputPair& pair, const QContext& context, DetailsRow& row) {
  Limits limits;
  if (!LimitsFor(pair.device.dtype, limits) || row.status == Status::kSkip) return;
  if (!IsFloat(pair.bench.dtype) || pair.device.num_elements() == 0) return;
  if (!std::equal(pair.bench.shape.begin(), pair.bench.shape.end(), pair.device.shape.begin(),
                  pair.device.shape.end()))
    return;
  QContext used = context;
  if (used.baseline != nullptr && (used.baseline->dtype != pair.device.dtype ||
                                   used.baseline->num_elements() != pair.device.num_elements()))
    used.baseline = nullptr;
  const Findings f = Measure(pair, used, limits);
  const bool has_baseline = used.baseline != nullptr;
  // Small elements of a sum are what cancellation left, and so is a gradient that is zero in exact
  // arithmetic: no kernel gets them right to a share of themselves. A difference that rounding at
  // the scale of the terms explains raises nothing.
  const bool is_sum = pair.gradient || IsSummed(pair.api);
  if (row.is_relative && row.status != Status::kPass && is_sum &&
      f.device.largest <= limits.least_max) {
    row.status = Status::kPass;
    row.message += fmt::format(
        "\nQ0 rounding explains it: largest error {:.4g} rounding units: pass", f.device.largest);
  }
  if (has_baseline) {
    const double explained = std::max(limits.least_max, 8 * f.baseline.largest);
    if (f.device.largest > explained) {
      Worsen(
          row, Status::kError,
          fmt::format("Q1 largest error {:.4g} rounding units, explained {:.4g} (CPU in the same "
                      "dtypes: {:.4g})",
                      f.device.largest, explained, f.baseline.largest));
    } else if (f.device.rms() > std::max(limits.least_rms, 2.5 * f.baseline.rms())) {
      Worsen(row, Status::kError,
             fmt::format("Q2 root mean square error {:.4g} rounding units, CPU in the same dtypes "
                         "{:.4g}",
                         f.device.rms(), f.baseline.rms()));
    }
  } else if (!used.amplifies) {
    const double explained =
        limits.alone + limits.per_root_term * std::sqrt(std::max(used.terms, 1.0));
    if (f.device.largest > explained) {
      Worsen(row, Status::kError,
             fmt::format("Q1 largest error {:.4g} rounding units, explained {:.4g}",
                         f.device.largest, explained));
    }
  }
  if (f.flushed > f.flushed_baseline) {
    Worsen(row, Status::kWarning, fmt::format("Q3 {} subnormal results are zero here", f.flushed));
  }
}

}  // namespace msprobe::precheck
