#include "compare/highlight.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "compare/judge.h"
#include "compare/statistics.h"

namespace msprobe::compare {
namespace {

constexpr size_t kMaxRows = 1048500;

bool IsRed(Highlight h) {
  return h == Highlight::kH1 || h == Highlight::kH2 || h == Highlight::kH3 || h == Highlight::kH7;
}

// The figures of a row that colouring looks at; `pairs`: it takes part in input-output pairs.
struct Figures {
  bool pairs = false;
  std::optional<double> difference;  // MaxAbsErr or Max diff
  std::optional<double> ratio, cosine, relative;
};

bool Infinite(const CellValue& cell) {
  double value = 0;
  const CellClass c = ClassOf(cell, value);
  return c == CellClass::kInf || c == CellClass::kNegInf;
}

std::optional<double> DifferenceOf(const Row& row, Mode mode) {
  if (!row.golden || !row.target || row.gate == Gate::kDTypes) return std::nullopt;
  if (mode == Mode::kTensor) {
    if (row.gate != Gate::kCompared && row.gate != Gate::kZeroDim) return std::nullopt;
    if (std::isnan(row.metrics->max_abs)) return std::nullopt;
    return row.metrics->max_abs;
  }
  const StatCell largest = StatisticsCells(row).diff[0];
  switch (largest.kind) {
    case StatCell::Kind::kNumber:
      return largest.value;
    case StatCell::Kind::kInf:
      return HUGE_VAL;
    case StatCell::Kind::kNegInf:
      return -HUGE_VAL;
    case StatCell::Kind::kZeroText:
      return 0.0;
    default:
      return std::nullopt;
  }
}

// Relative error of the maxima; a golden 0 has none (compare.md 8.1).
std::optional<double> RelativeOfMax(const Row& row) {
  double n = 0, b = 0;
  if (!IsPlainNumber(row.target->max, n) || !IsPlainNumber(row.golden->max, b) || b == 0) {
    return std::nullopt;
  }
  const double relative = std::abs((n - b) / b);
  return std::isnan(relative) ? std::nullopt : std::optional(relative);
}

Figures FiguresOf(const Row& row, Mode mode) {
  Figures f;
  f.difference = DifferenceOf(row, mode);
  double unused = 0;
  f.pairs = f.difference && IsPlainNumber(row.target->max, unused) &&
            IsPlainNumber(row.golden->max, unused);
  if (!f.pairs) return f;
  if (mode == Mode::kTensor && row.gate == Gate::kCompared) {
    f.ratio = row.metrics->below_thousandth;
    if (row.metrics->cosine_case == metrics::CosineCase::kValue) f.cosine = row.metrics->cosine;
    if (row.metrics->cosine_case == metrics::CosineCase::kBothZero) f.cosine = 1;
  } else if (mode == Mode::kStatistics) {
    f.relative = RelativeOfMax(row);
  }
  return f;
}

// Inputs of one entry, as far as any pair with an output needs them: a reason holds for some input
// exactly when it holds for the extreme one, which keeps an entry of many inputs and outputs
// linear.
struct Inputs {
  bool any = false;
  double smallest_difference = HUGE_VAL;  // of those above 1
  double largest_ratio = -HUGE_VAL;
  double largest_ratio_to_090 = -HUGE_VAL;  // of those that H3 leaves out
  double largest_cosine = -HUGE_VAL;
  double smallest_relative = HUGE_VAL;

  void Add(const Figures& f) {
    any = true;
    const double difference = std::abs(*f.difference);
    if (difference > 1) smallest_difference = std::min(smallest_difference, difference);
    if (f.ratio) largest_ratio = std::max(largest_ratio, *f.ratio);
    if (f.ratio && *f.ratio <= 0.9) largest_ratio_to_090 = std::max(largest_ratio_to_090, *f.ratio);
    if (f.cosine) largest_cosine = std::max(largest_cosine, *f.cosine);
    if (f.relative) smallest_relative = std::min(smallest_relative, *f.relative);
  }
};

class Painter {
 public:
  Painter(std::vector<Row>& rows, Mode mode, const Options& options)
      : rows_(rows), mode_(mode), default_rules_(options.rules == RuleSet::kDefault) {}

  void Run() {
    for (const RowGroup group : GroupRows(rows_)) Paint(group);
    for (Row& row : rows_) Settle(row);
  }

 private:
  void Paint(RowGroup group) {
    Inputs inputs;
    for (size_t i = group.first; i < group.last; ++i) {
      const State state = rows_[i].target->state;
      if (state != State::kInput && state != State::kParameters) continue;
      const Figures f = FiguresOf(rows_[i], mode_);
      if (f.pairs) inputs.Add(f);
    }
    for (size_t i = group.first; i < group.last; ++i) {
      Row& row = rows_[i];
      const Figures f = FiguresOf(row, mode_);
      if (HasNonFinite(*row.target)) {
        row.highlights.push_back(Highlight::kH1);
      } else if (f.difference && std::abs(*f.difference) > 1e10) {
        row.highlights.push_back(Highlight::kH2);
      }
      if (row.target->state == State::kOutput && f.pairs && inputs.any) AddPairs(inputs, f, row);
      const bool unmatched = !row.golden || row.gate == Gate::kDTypes;
      if (!row.grad_consistent && !(default_rules_ && unmatched)) {  // D15
        row.highlights.push_back(Highlight::kH9);
      }
    }
  }

  // NaN counts in the default rules only (D7).
  bool HasNonFinite(const Leaf& leaf) const {
    if (default_rules_) return IsNonFinite(leaf.max) || IsNonFinite(leaf.min);
    return Infinite(leaf.max) || Infinite(leaf.min);
  }

  static void AddPairs(const Inputs& in, const Figures& out, Row& row) {
    const double difference = std::abs(*out.difference);
    if (difference > 1 && difference >= in.smallest_difference &&
        std::log10(difference) - std::log10(in.smallest_difference) >= 1) {
      row.highlights.push_back(Highlight::kH6);
    }
    if (out.ratio) {
      const bool low = *out.ratio < 0.6;
      if (low && in.largest_ratio > 0.9) row.highlights.push_back(Highlight::kH3);
      const double other = low ? in.largest_ratio_to_090 : in.largest_ratio;
      if (other - *out.ratio > 0.1) row.highlights.push_back(Highlight::kH4);
    }
    if (out.cosine && in.largest_cosine - *out.cosine > 0.1) {
      row.highlights.push_back(Highlight::kH5);
    }
    if (out.relative && *out.relative > 0.5) row.highlights.push_back(Highlight::kH7);
    if (out.relative && *out.relative > 0.1 && in.smallest_relative < 0.01) {
      row.highlights.push_back(Highlight::kH8);
    }
  }

  // Red wins; a red row names its red reasons only.
  static void Settle(Row& row) {
    row.red = std::any_of(row.highlights.begin(), row.highlights.end(), IsRed);
    row.yellow = !row.red && !row.highlights.empty();
    if (row.red) row.highlights.EraseIf([](Highlight h) { return !IsRed(h); });
  }

  std::vector<Row>& rows_;
  Mode mode_;
  bool default_rules_;
};

}  // namespace

void HighlightRows(std::vector<Row>& rows, Mode mode, const Options& options) {
  if (mode == Mode::kMd5 || rows.size() > kMaxRows) return;
  Painter(rows, mode, options).Run();
}

std::string_view HighlightText(Highlight reason) {
  switch (reason) {
    case Highlight::kH1:
      return "maximum or minimum is nan, -inf, or inf";
    case Highlight::kH2:
      return "maximum absolute error exceeds 1e+10";
    case Highlight::kH3:
      return "The input/parameter's one thousandth err ratio exceeds 0.9, while the output's is "
             "below 0.6";
    case Highlight::kH4:
      return "The output's one thousandth err ratio decreases by more than 0.1 compared to the "
             "input/parameter's";
    case Highlight::kH5:
      return "The output's cosine decreases by more than 0.1 compared to the input/parameter's";
    case Highlight::kH6:
      return "maximum absolute error of both input/parameters and output exceed 1, with the output "
             "larger by an order of magnitude";
    case Highlight::kH7:
      return "maximum relative error exceeds 0.5";
    case Highlight::kH8:
      return "The output's maximum relative error exceeds 0.1, while the input/parameter's is "
             "below 0.01";
    case Highlight::kH9:
      return "requires_grad is inconsistent";
  }
  return {};
}

}  // namespace msprobe::compare
