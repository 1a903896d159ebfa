#include "compare/judge.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "compare/default_rules.h"
#include "compare/match.h"
#include "compare/statistics.h"
#include "compare/store.h"
#include "metrics/rounding.h"

namespace msprobe::compare {
namespace {

constexpr std::array<std::string_view, 9> kExempt = {"empty",
                                                     "empty_like",
                                                     "numpy",
                                                     "to",
                                                     "__setitem__",
                                                     "empty_with_format",
                                                     "new_empty_strided",
                                                     "new_empty",
                                                     "empty_strided"};
constexpr std::array<std::string_view, 4> kExemptInputs = {
    "_reduce_scatter_base", "_all_gather_base", "all_to_all_single", "batch_isend_irecv"};

template <size_t N>
bool Contains(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string_view SecondComponent(std::string_view name) {
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos) return {};
  return name.substr(dot + 1, name.find('.', dot + 1) - dot - 1);
}

bool IsOutput(const Row& row, RuleSet rules) {
  if (rules == RuleSet::kUpstream) {
    return row.target->name.find(".output.") != std::string_view::npos;
  }
  return row.target->state == State::kOutput;  // D13: from the record, not from the name
}

bool NonFinite(const Leaf& leaf) { return IsNonFinite(leaf.max) || IsNonFinite(leaf.min); }

bool IsWarning(Rule rule) {
  return rule == Rule::kR7t || rule == Rule::kR7s || rule == Rule::kR8Warning;
}

// What a cell of NormRelativeErr is worth (10.4): percents as fractions; other words only for a
// row's own test.
bool NormError(const Row& row, double& value) {
  if (!row.golden || row.gate == Gate::kDTypes) return false;
  const StatCell cell = NormErrorCell(row);
  if (cell.kind != StatCell::Kind::kPercent) return false;
  value = cell.value / 100;
  return true;
}
double OwnNormError(const Row& row) {
  double value = 0;
  if (NormError(row, value)) return value;
  return row.golden && NormErrorCell(row).kind == StatCell::Kind::kInf ? HUGE_VAL : 0;
}

// Figures of one row that count for its entry. Tensors whose recorded shapes differ are R6's
// already: one finding, not two.
bool CountsForEntry(const Row& row) {
  return row.golden && row.gate == Gate::kCompared && row.target->shape == row.golden->shape;
}

bool RatioOf(const Row& row, double& value) {
  if (!CountsForEntry(row)) return false;
  value = row.metrics->below_thousandth;
  return true;
}
bool CosineCell(const Row& row, double& value) {
  const metrics::CosineCase c = row.metrics->cosine_case;
  if (c == metrics::CosineCase::kBothZero) {
    value = 1;
    return true;
  }
  value = row.metrics->cosine;
  return c == metrics::CosineCase::kValue;
}

bool CosineOf(const Row& row, double& value) {
  return CountsForEntry(row) && CosineCell(row, value);
}

using Reader = bool (*)(const Row&, double&);

// The same for training against inference, whose shapes differ by dimensions of 1 and by fusion.
bool FusedRatioOf(const Row& row, double& value) {
  value = row.metrics->below_thousandth;
  return row.golden && row.gate == Gate::kCompared;
}
bool FusedCosineOf(const Row& row, double& value) {
  return row.golden && row.gate == Gate::kCompared && CosineCell(row, value);
}

class GroupJudge {
 public:
  // `explained`: the default rules' view of what rounding explains; null for the other sets.
  GroupJudge(std::vector<Row>& rows, RowGroup group, Mode mode, const Options& options,
             const DefaultRules* explained)
      : rows_(rows),
        group_(group),
        mode_(mode),
        rules_(options.rules),
        backend_(options.backend),
        explained_(explained) {}

  void Run() {
    FindExemption();
    if (exempt_) return;
    for (size_t i = group_.first; i < group_.last; ++i) {
      if (!exempt_inputs_ || Output(i)) RowRules(rows_[i]);
    }
    if (mode_ == Mode::kMd5 || exempt_inputs_) return;
    if (mode_ == Mode::kTensor) {
      TensorRules();
    } else {
      StatisticsRules();
    }
  }

 private:
  bool Output(size_t i) const { return IsOutput(rows_[i], rules_); }
  // An output whose difference rounding explains: the rules about whole entries pass over it.
  bool Silent(size_t i) const { return explained_ && Output(i) && explained_->Explains(i); }

  // The second component of the first input row's name decides; a group without inputs has none.
  void FindExemption() {
    for (size_t i = group_.first; i < group_.last; ++i) {
      if (Output(i)) continue;
      const std::string_view api = SecondComponent(rows_[i].target->name);
      exempt_ = Contains(kExempt, api);
      exempt_inputs_ = Contains(kExemptInputs, api);
      return;
    }
    if (rules_ != RuleSet::kDefault) return;
    const std::string_view api = SecondComponent(rows_[group_.first].target->name);
    exempt_ = Contains(kExempt, api);
    exempt_inputs_ = Contains(kExemptInputs, api);
  }

  void RowRules(Row& row) {
    if (!row.golden || row.gate == Gate::kDTypes) return;
    if (mode_ == Mode::kMd5) return ChecksumRule(row);
    const Leaf& t = *row.target;
    const Leaf& g = *row.golden;
    if (NonFinite(t) && !NonFinite(g)) {
      row.rules.push_back(Rule::kR1);
    } else if (rules_ != RuleSet::kUpstream && ClassDiffers(row)) {
      row.rules.push_back(Rule::kClass);
    }
    if (backend_ != Backend::kNone) return ConsistentRowRules(row);
    if (GradDiffers(t, g)) row.rules.push_back(Rule::kR3);
    // D1: values that are written out are compared on both sides of a call. The recorded answers,
    // which bind the base set, pass those of outputs.
    const bool scalar = rules_ == RuleSet::kDefault || !IsOutput(row, rules_);
    if (scalar && ScalarDiffers(t, g)) row.rules.push_back(Rule::kR4);
    const bool fused_name =
        rules_ != RuleSet::kDefault && (g.name.find("qkv") != std::string_view::npos ||
                                        g.name.find("gate_up") != std::string_view::npos);  // D17
    if (t.dtype != g.dtype && !fused_name && !BothNumbers(t, g) && !SameType(t, g))
      row.rules.push_back(Rule::kR5);
    if (t.shape != g.shape) row.rules.push_back(Rule::kR6);
  }

  // Training against inference (compare.md 18): no R3; R6 without dimensions of 1; names of fused
  // modules escape R5 and, in fsdp, R6.
  void ConsistentRowRules(Row& row) const {
    const Leaf& t = *row.target;
    const Leaf& g = *row.golden;
    if (!IsOutput(row, rules_) && ScalarDiffers(t, g)) row.rules.push_back(Rule::kR4);
    const bool fused = row.merged || g.name.find("qkv") != std::string_view::npos ||
                       g.name.find("gate_up") != std::string_view::npos;
    if (!fused && t.dtype != g.dtype) row.rules.push_back(Rule::kR5);
    const bool exempt = row.merged || (fused && backend_ == Backend::kFsdp);
    if (!exempt && SqueezedText(t.shape) != SqueezedText(g.shape)) {
      row.rules.push_back(Rule::kR6);
    }
  }

  // D1, D6: what R1 does not see. Elements decide where they were read, recorded extremes
  // elsewhere.
  bool ClassDiffers(const Row& row) const {
    const bool read =
        mode_ == Mode::kTensor && (row.gate == Gate::kCompared || row.gate == Gate::kZeroDim ||
                                   row.gate == Gate::kNonFinitePositions);
    if (read) return row.class_differs;
    const Leaf& t = *row.target;
    const Leaf& g = *row.golden;
    const auto lost = [](const CellValue& n, const CellValue& b) {
      double value = 0;
      return IsNonFinite(b) && ClassOf(n, value) == CellClass::kNumber;
    };
    return !NonFinite(t) && (lost(t.max, g.max) || lost(t.min, g.min));
  }

  // What one side did not record differs from nothing (default rules).
  bool GradDiffers(const Leaf& t, const Leaf& g) const {
    constexpr auto kUnknown = Leaf::Grad::kUnknown;
    const bool open = t.requires_grad == kUnknown || g.requires_grad == kUnknown;
    return t.requires_grad != g.requires_grad && !(open && rules_ == RuleSet::kDefault);
  }

  // `Float32` of one framework is `torch.float32` of the other.
  static bool SameType(const Leaf& t, const Leaf& g) {
    const auto a = RecordedDType(t.dtype), b = RecordedDType(g.dtype);
    return a && b && *a == *b;
  }

  // Python numbers of different classes: 3 and 3.0 are one argument to the default rules.
  bool BothNumbers(const Leaf& t, const Leaf& g) const {
    double unused = 0;
    return rules_ == RuleSet::kDefault && !t.is_tensor && !g.is_tensor &&
           IsPlainNumber(t.max, unused) && IsPlainNumber(g.max, unused);
  }

  bool ScalarDiffers(const Leaf& t, const Leaf& g) const {
    if (rules_ == RuleSet::kDefault && !t.is_tensor && !g.is_tensor) return ValueDiffers(t, g);
    constexpr std::string_view kClassText = "class";
    if (t.dtype.find(kClassText) == std::string_view::npos ||
        g.dtype.find(kClassText) == std::string_view::npos || t.shape != "[]") {
      return false;
    }
    // npu:0 against cuda:0 is what a cross-device run is about (D18).
    if (rules_ != RuleSet::kUpstream && t.is_device && g.is_device) return false;
    return !SameText(t.max, g.max);
  }

  // Values of every kind, by what was recorded of them. Floating numbers may stem from a tensor:
  // what rounding of float32 explains is no other argument.
  bool ValueDiffers(const Leaf& t, const Leaf& g) const {
    if (t.is_null || g.is_null || (t.is_device && g.is_device)) return false;
    double x = 0, y = 0;
    if (IsPlainNumber(t.max, x) && IsPlainNumber(g.max, y)) {
      const bool floating =
          t.max.kind() == CellValue::Kind::kDouble || g.max.kind() == CellValue::Kind::kDouble;
      if (!floating) return !SameText(t.max, g.max);
      return !(x == y) && !(std::abs(x - y) <= metrics::NoiseLevel(DType::kF32) * std::abs(y));
    }
    return t.more->word != g.more->word || !SameText(t.max, g.max) || t.md5 != g.md5;
  }

  void ChecksumRule(Row& row) const {
    if (rules_ == RuleSet::kDefault) {  // D19
      const Leaf& t = *row.target;
      const Leaf& g = *row.golden;
      if (GradDiffers(t, g)) row.rules.push_back(Rule::kR3);
      if (t.dtype != g.dtype) row.rules.push_back(Rule::kR5);
      if (t.shape != g.shape) row.rules.push_back(Rule::kR6);
    }
    if (row.gate == Gate::kChecksumKinds || row.gate == Gate::kNoValues ||
        row.gate == Gate::kBothEmpty || row.target->md5 == row.golden->md5) {
      return;
    }
    const auto missing = [](std::string_view md5) {
      return md5.empty() || md5 == "N/A" || md5 == "Nan";
    };
    row.rules.push_back(missing(row.target->md5) || missing(row.golden->md5) ? Rule::kR8Warning
                                                                             : Rule::kR8Error);
  }

  // Smallest or largest figure of inputs (`outputs` false) or outputs; `start` when there is none.
  template <class Fold>
  double Extreme(bool outputs, double start, Reader read, Fold fold) const {
    double extreme = start;
    for (size_t i = group_.first; i < group_.last; ++i) {
      double value = 0;
      if (Silent(i)) continue;
      if (Output(i) == outputs && read(rows_[i], value)) extreme = fold(extreme, value);
    }
    return extreme;
  }
  double Smallest(bool outputs, Reader read) const {
    return Extreme(outputs, 1.0, read, [](double a, double b) { return std::min(a, b); });
  }
  double Largest(bool outputs, Reader read) const {
    return Extreme(outputs, 0.0, read, [](double a, double b) { return std::max(a, b); });
  }

  // The first output that was compared at all carries the finding about the entry.
  void MarkFirstOutput(Rule rule) {
    for (size_t i = group_.first; i < group_.last; ++i) {
      if (!Output(i) || !rows_[i].golden || rows_[i].gate == Gate::kDTypes) continue;
      if (Silent(i)) continue;
      Insert(rows_[i], rule);
      return;
    }
  }

  // Rules stand in rule order: R2 after R1, R7 last.
  static void Insert(Row& row, Rule rule) {
    auto at = row.rules.end();
    if (rule == Rule::kR2t || rule == Rule::kR2s) {
      at = std::find_if(row.rules.begin(), row.rules.end(),
                        [](Rule r) { return r != Rule::kR1 && r != Rule::kClass; });
    }
    row.rules.insert(at, rule);
  }

  void TensorRules() {
    // The document and the message say 0.6; upstream tests 0.1 (D4).
    const double limit = rules_ == RuleSet::kUpstream ? 0.1 : 0.6;
    const bool fused = backend_ != Backend::kNone;
    const Reader ratio = fused ? FusedRatioOf : RatioOf, cosine = fused ? FusedCosineOf : CosineOf;
    if (Smallest(false, ratio) > 0.9 && Smallest(true, ratio) < limit) {
      MarkFirstOutput(Rule::kR2t);
    }
    const double in = Smallest(false, cosine);
    if (in > 0.9 && in - Smallest(true, cosine) > 0.1) MarkFirstOutput(Rule::kR7t);
  }

  void StatisticsRules() {
    const double in = Largest(false, NormError), out = Largest(true, NormError);
    if (in < 0.1) {
      for (size_t i = group_.first; i < group_.last; ++i) {
        if (Output(i) && !Silent(i) && OwnNormError(rows_[i]) > 0.5) Insert(rows_[i], Rule::kR2s);
      }
    }
    if (in == 0 ? out > 0.1 : out / in > 10) MarkFirstOutput(Rule::kR7s);
  }

  std::vector<Row>& rows_;
  RowGroup group_;
  Mode mode_;
  RuleSet rules_;
  Backend backend_;
  const DefaultRules* explained_;
  bool exempt_ = false, exempt_inputs_ = false;
};

bool HasNoPartner(const Row& row) {
  return !row.target || !row.golden || row.gate == Gate::kDTypes;
}

// Whether nothing was compared although it should have been (decisions.md 24). Python values and
// null leaves have no file by nature.
bool Blocked(const Row& row, Mode mode) {
  if (HasNoPartner(row) || row.gate == Gate::kChecksumKinds || row.gate == Gate::kNoValues ||
      row.gate == Gate::kNotReached) {
    return true;
  }
  if (mode != Mode::kTensor) return false;
  switch (row.gate) {
    case Gate::kNoTargetFile:
    case Gate::kNoGoldenFile:
      // The default rules judge by statistics then (evidence).
      return (row.target->is_tensor || row.golden->is_tensor) && !row.evidence.known;
    case Gate::kUnreadable:
    case Gate::kEmpty:
    case Gate::kEmptyGolden:
    case Gate::kShapes:
    case Gate::kNotFloat:
      return true;
    default:
      return false;
  }
}

Verdict VerdictOf(const Row& row, Mode mode) {
  if (HasNoPartner(row)) return Verdict::kUnmatched;
  const auto found = [&](Verdict level) {
    return std::any_of(row.findings.begin(), row.findings.end(),
                       [&](const Finding& f) { return f.level == level; });
  };
  if (!std::all_of(row.rules.begin(), row.rules.end(), IsWarning) || found(Verdict::kError)) {
    return Verdict::kError;
  }
  if (Blocked(row, mode)) return Verdict::kUnmatched;
  return row.rules.empty() && !found(Verdict::kWarning) ? Verdict::kPass : Verdict::kWarning;
}

// compare.md 10.1 on unrounded values; a cosine of NaN is not reached (D3).
OldAccuracy AccuracyOf(const Row& row) {
  if (!row.target || !row.golden) return OldAccuracy::kNone;
  if (row.gate == Gate::kShapes) return OldAccuracy::kUnmatched;
  if (row.dropped_pair) return OldAccuracy::kNone;
  if (row.gate == Gate::kNonFinitePositions) return OldAccuracy::kNo;
  if (row.gate != Gate::kCompared) return OldAccuracy::kNone;
  double cosine = 0;
  const double largest = row.metrics->max_abs;
  if (row.metrics->cosine_case == metrics::CosineCase::kOneElement) return OldAccuracy::kNone;
  if (!CosineCell(row, cosine) || std::isnan(cosine) || std::isnan(largest))
    return OldAccuracy::kNo;
  if (cosine < 0.99 && largest > 0.001) return OldAccuracy::kNo;
  if (cosine < 0.9 || largest > 1) return OldAccuracy::kNo;
  return OldAccuracy::kYes;
}

// compare.md 10.2; the default rule set takes the documented relative error and finite against
// non-finite (D14).
bool StatisticWarns(const CellValue& n, const CellValue& b, bool documented) {
  double x = 0, y = 0;
  const bool n_number = IsPlainNumber(n, x), b_number = IsPlainNumber(b, y);
  if (!documented) {
    return n_number && b_number && std::abs(x - y) / (std::abs(std::max(x, y)) + 1e-10) > 0.5;
  }
  if (IsNonFinite(n) != IsNonFinite(b) || n_number != b_number) return true;
  if (!n_number || std::isinf(x) || std::isinf(y)) return n_number && x != y;
  return std::abs(x - y) / (std::abs(y) + 1e-10) > 0.5;
}

OldResult ResultOf(const Row& row, Mode mode, bool documented) {
  if (row.uncompared) return OldResult::kNotCompared;
  if (mode == Mode::kMd5) {
    const bool same = row.gate == Gate::kBothEmpty || row.target->md5 == row.golden->md5;
    return same ? OldResult::kPass : OldResult::kDifferent;
  }
  const Leaf& n = *row.target;
  const Leaf& b = *row.golden;
  const bool warns =
      StatisticWarns(n.max, b.max, documented) || StatisticWarns(n.min, b.min, documented) ||
      StatisticWarns(n.mean, b.mean, documented) || StatisticWarns(n.norm, b.norm, documented);
  return warns ? OldResult::kWarning : OldResult::kEmpty;
}

void CountOld(const Row& row, Mode mode, Counts& counts) {
  if (mode == Mode::kTensor) {
    counts.yes += row.accuracy == OldAccuracy::kYes;
    counts.no += row.accuracy == OldAccuracy::kNo;
    counts.none += row.accuracy == OldAccuracy::kNone || row.accuracy == OldAccuracy::kUnmatched;
  }
  const bool bad = row.accuracy == OldAccuracy::kNo || row.result == OldResult::kDifferent;
  if (bad) {
    ++counts.error;
  } else if (row.uncompared) {
    ++counts.unmatched;
  } else if (row.result == OldResult::kWarning) {
    ++counts.warning;
  } else {
    ++counts.pass;
  }
}

}  // namespace

std::vector<RowGroup> GroupRows(const std::vector<Row>& rows) {
  std::vector<RowGroup> groups;
  for (size_t i = 0; i < rows.size() && rows[i].target; ++i) {
    if (rows[i].first_of_entry) groups.push_back({i, i});
    groups.back().last = i + 1;
  }
  return groups;
}

bool IsExempt(const Row& row) {
  return row.target && Contains(kExempt, SecondComponent(row.target->name));
}

void JudgeRows(std::vector<Row>& rows, const Side& target, Mode mode, const Options& options) {
  const bool documented = options.rules == RuleSet::kDefault;
  std::optional<DefaultRules> rules;
  if (documented) rules.emplace(rows, target, mode, options);
  for (const RowGroup group : GroupRows(rows)) {
    GroupJudge(rows, group, mode, options, rules ? &*rules : nullptr).Run();
  }
  if (rules) rules->Finish();
  for (size_t i = 0; i < rows.size(); ++i) {
    Row& row = rows[i];
    row.verdict = VerdictOf(row, mode);
    row.uncompared = options.face == Face::kOld ? Blocked(row, mode) || row.dropped_pair
                                                : row.verdict == Verdict::kUnmatched;
    if (mode == Mode::kTensor) {
      row.accuracy = AccuracyOf(row);
    } else {
      row.result = ResultOf(row, mode, documented);
      // D14, and as R2 and R7: rounding is nothing to warn of.
      if (rules && row.result == OldResult::kWarning && rules->Explains(i)) {
        row.result = OldResult::kEmpty;
      }
    }
  }
}

Counts CountRows(const std::vector<Row>& rows, Mode mode, const Options& options) {
  Counts counts;
  counts.total = rows.size();
  for (const Row& row : rows) {
    if (options.face == Face::kOld) {
      CountOld(row, mode, counts);
      continue;
    }
    counts.consequences +=
        row.consequence && (row.verdict == Verdict::kWarning || row.verdict == Verdict::kError);
    switch (row.verdict) {
      case Verdict::kPass:
        ++counts.pass;
        break;
      case Verdict::kWarning:
        ++counts.warning;
        break;
      case Verdict::kError:
        ++counts.error;
        break;
      case Verdict::kUnmatched:
        ++counts.unmatched;
        break;
    }
  }
  return counts;
}

}  // namespace msprobe::compare
