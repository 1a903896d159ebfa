#include "compare/default_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compare/evidence.h"
#include "compare/match.h"
#include "compare/statistics.h"
#include "dump/overwritten.h"
#include "metrics/rounding.h"

namespace msprobe::compare {
namespace {

int RankOf(Direction direction) {
  if (direction == Direction::kBackward) return 1;
  return direction == Direction::kGrad ? 2 : 0;
}

// `linear` of `Functional.linear`, the class of a module.
std::string_view LastPart(std::string_view base) {
  const size_t dot = base.rfind('.');
  return dot == std::string_view::npos ? base : base.substr(dot + 1);
}

bool IsModule(std::string_view base) {
  return base.starts_with("Module.") || base.starts_with("Cell.");
}

// The coarser dtype of a pair; float32 when neither is known.
DType CoarserOf(const Row& row) {
  const auto t = RecordedDType(row.target->dtype);
  const auto g = row.golden ? RecordedDType(row.golden->dtype) : t;
  if (!t || !g) return t ? *t : (g ? *g : DType::kF32);
  return UnitRoundoff(*t) >= UnitRoundoff(*g) ? *t : *g;
}

bool Paired(const Row& row) { return row.target && row.golden && row.gate != Gate::kDTypes; }

double LastExtent(std::string_view shape) {
  const size_t from = shape.find_last_of("[ ");
  if (from == std::string_view::npos) return 1;
  return std::max(1.0, std::strtod(std::string(shape.substr(from + 1)).c_str(), nullptr));
}

bool IsOverwrittenLeaf(std::string_view api, std::string_view entry, std::string_view row) {
  if (row.size() <= entry.size() + 1 || !row.starts_with(entry)) return false;
  return dump::IsOverwritten(api, row.substr(entry.size() + 1));
}

bool AddsUp(std::string_view api) {
  for (const std::string_view name : {"add", "__add__", "__radd__", "__iadd__", "add_", "sub",
                                      "__sub__", "__rsub__", "__isub__", "sub_", "sum", "mean"}) {
    if (api == name) return true;
  }
  return false;
}

}  // namespace

std::vector<RowGroup> ExecutionOrder(const std::vector<RowGroup>& groups,
                                     const std::vector<Row>& rows, const Side& target) {
  std::vector<uint8_t> rank;
  rank.reserve(groups.size());
  for (const RowGroup& g : groups) {
    const NameParts parts = ParseEntryName(target.entries[rows[g.first].target->entry].name);
    rank.push_back(static_cast<uint8_t>(RankOf(parts.direction)));
  }
  std::vector<RowGroup> out;
  out.reserve(groups.size());
  for (uint8_t r = 0; r < 3; ++r) {
    for (size_t i = 0; i < groups.size(); ++i) {
      if (rank[i] == r) out.push_back(groups[i]);
    }
  }
  return out;
}

DefaultRules::DefaultRules(std::vector<Row>& rows, const Side& target, Mode mode,
                           const Options& options)
    : rows_(rows),
      target_(target),
      mode_(mode),
      options_(options),
      order_(ExecutionOrder(GroupRows(rows), rows, target)),
      states_(rows.size()) {
  for (const RowGroup group : order_) {
    if (RankOf(DirectionOf(group)) == 0) continue;
    for (size_t i = group.first; i < group.last; ++i) {
      if (!rows[i].evidence.known) continue;
      double& largest = largest_[rows[i].target->shape];
      largest = std::max(largest, rows[i].evidence.rms);
    }
  }
  for (const RowGroup group : order_) Measure(group);
}

Direction DefaultRules::DirectionOf(RowGroup group) const {
  return ParseEntryName(target_.entries[rows_[group.first].target->entry].name).direction;
}

bool DefaultRules::IsResult(size_t row) const {
  const State state = rows_[row].target->state;
  return state == State::kOutput || state == State::kParametersGrad || state == State::kDebug;
}

void DefaultRules::Enter(RowGroup group) {
  at_.entry = target_.entries[rows_[group.first].target->entry].name;
  at_.parts = ParseEntryName(at_.entry);
  at_.api = LastPart(at_.parts.base);
  at_.module = IsModule(at_.parts.base);
  at_.forward = RankOf(at_.parts.direction) == 0;
  at_.family = &metrics::RoundingFamilyOf(at_.module ? std::string_view() : at_.api);
  at_.key.assign(at_.parts.base);
  at_.key += '.';
  at_.key += at_.parts.call;
}

DefaultRules::Limits DefaultRules::LimitsOf(size_t row) const {
  const Leaf& leaf = *rows_[row].target;
  const DType dtype = CoarserOf(rows_[row]);
  Limits out{at_.family->c, at_.family->gain, metrics::NoiseLevel(dtype),
             metrics::LargestNoise(dtype)};
  if (!options_.rule_file) return out;
  for (const config::RuleChange& change : options_.rule_file->limits) {
    if (!change.Matches(at_.api, leaf.dtype, leaf.name)) continue;
    if (change.rounding) out.rounding = *change.rounding;
    if (change.gain) out.gain = *change.gain;
    if (change.noise) {
      out.noise = *change.noise;
      out.most = std::max(out.most, out.noise);
    }
  }
  return out;
}

// Gradients are judged at the scale of their siblings in the entry: some are zero in exact
// arithmetic, and what is left of them is rounding of the others. Sums are judged at the scale of
// what they add.
double DefaultRules::ScaleOf(RowGroup group, size_t row) const {
  const Evidence& own = rows_[row].evidence;
  if (at_.forward && !(IsResult(row) && AddsUp(at_.api))) return own.rms;
  double scale = own.rms;
  for (size_t i = group.first; i < group.last; ++i) {
    if (rows_[i].evidence.known && !rows_[i].evidence.exact) {
      scale = std::max(scale, rows_[i].evidence.rms);
    }
  }
  return scale;
}

// Smaller on both sides than what rounding leaves of the largest gradient of its shape.
bool DefaultRules::IsZeroGradient(size_t row, double group_rms, double noise) const {
  const auto it = largest_.find(rows_[row].target->shape);
  const double other = std::max(group_rms, it == largest_.end() ? 0 : it->second);
  return rows_[row].evidence.rms <= noise * other;
}

double DefaultRules::OwnRounding(RowGroup group, size_t row, const Limits& limits) const {
  const std::string_view family = at_.family->name;
  double in[2] = {1, 1};
  size_t inputs = 0;
  double last = 1;
  for (size_t i = group.first; i < group.last && inputs < 2; ++i) {
    if (IsResult(i) || !rows_[i].target->is_tensor) continue;
    const int64_t n = ElementsOf(rows_[i].target->shape);
    if (inputs == 0) last = LastExtent(rows_[i].target->shape);
    in[inputs++] = static_cast<double>(std::max<int64_t>(n, 1));
  }
  const double out = std::max(rows_[row].evidence.elements, 1.0);
  double terms = 1;
  if (family == "product") terms = inputs == 2 ? std::sqrt(in[0] * in[1] / out) : in[0];
  if (family == "sum") terms = in[0] / out;
  if (family == "norm and loss") terms = last;
  const DType dtype = CoarserOf(rows_[row]);
  return limits.rounding * (metrics::AccumulationRoundoff(dtype) * std::sqrt(std::max(terms, 1.0)) +
                            UnitRoundoff(dtype));
}

bool DefaultRules::Overwritten(size_t row) const {
  const Leaf& leaf = *rows_[row].target;
  return leaf.state == State::kInput && IsOverwrittenLeaf(at_.api, at_.entry, leaf.name);
}

void DefaultRules::Measure(RowGroup group) {
  Enter(group);
  const bool forward = at_.forward;
  const std::string& key = at_.key;
  double input = -1, result = 0;
  const auto take = [&](size_t i) {
    RowState& s = states_[i];
    const Evidence& e = rows_[i].evidence;
    if (!e.known || e.exact || !Paired(rows_[i]) || Overwritten(i)) return false;
    s.deviation = static_cast<float>(e.DeviationAt(ScaleOf(group, i)));
    return true;
  };
  for (size_t i = group.first; i < group.last; ++i) {
    if (!IsResult(i) && take(i)) input = std::max(input, static_cast<double>(states_[i].deviation));
  }
  double before = input;
  if (!forward) {
    const auto it = forward_.find(key);
    if (it != forward_.end()) before = std::max(before, it->second);
  }
  for (size_t i = group.first; i < group.last; ++i) {
    RowState& s = states_[i];
    if (IsResult(i) ? !take(i) : s.deviation < 0) continue;
    const Limits limits = LimitsOf(i);
    // Behind coarse types finer ones carry their rounding on.
    most_ = std::max({most_, limits.most, limits.noise});
    const double noise = std::min(std::max(limits.noise, metrics::kFrontFactor * front_), most_);
    double limit = noise;
    if (IsResult(i)) {
      const bool tight = forward && before >= 0 && !at_.module;
      const double own = OwnRounding(group, i, limits);
      limit = (tight ? own : std::max(own, noise)) + limits.gain * std::max(before, 0.0);
      // What comes in broken may go out anyhow.
      if (before > most_) limit = HUGE_VAL;
    }
    s.limit = static_cast<float>(limit);
    s.noise = static_cast<float>(noise);
    const bool zero = !forward && IsZeroGradient(i, ScaleOf(group, i), noise);
    s.explained = zero || static_cast<double>(s.deviation) <= limit;
    s.deviates = !zero && static_cast<double>(s.deviation) > noise;
    if (!IsResult(i)) continue;
    result = std::max(result, static_cast<double>(s.deviation));
    if (s.explained && static_cast<double>(s.deviation) <= most_ / 4) {
      front_ = std::max(front_, zero ? 0.0 : static_cast<double>(s.deviation));
    }
  }
  if (forward) {
    double& largest = forward_[key];
    largest = std::max({largest, input, result});
  }
}

void DefaultRules::Finish() {
  for (const RowGroup group : order_) {
    Enter(group);
    Findings(group);
    MarkConsequences(group);
  }
}

void DefaultRules::Findings(RowGroup group) {
  entry_input_ = -1;
  for (size_t i = group.first; i < group.last; ++i) {
    if (!IsResult(i)) {
      entry_input_ = std::max(entry_input_, static_cast<double>(states_[i].deviation));
    }
  }
  for (size_t i = group.first; i < group.last; ++i) {
    if (Paired(rows_[i])) RowFindings(i);
  }
}

void DefaultRules::RowFindings(size_t index) {
  Row& row = rows_[index];
  const Leaf& t = *row.target;
  const Leaf& g = *row.golden;
  if (row.proposed) row.findings.push_back({.rule = QRule::kN5});
  if (Overwritten(index)) {
    row.rules.EraseIf([](Rule r) {
      return r == Rule::kR1 || r == Rule::kClass || r == Rule::kR8Error || r == Rule::kR8Warning;
    });
    return TakeOut(row);
  }
  const bool judged = !IsExempt(row);
  if (judged && mode_ != Mode::kMd5) {
    const bool class_hit = std::any_of(row.rules.begin(), row.rules.end(),
                                       [](Rule r) { return r == Rule::kR1 || r == Rule::kClass; });
    if (!class_hit && t.nan >= 0 && g.nan >= 0 && (t.nan != g.nan || t.inf != g.inf)) {
      row.findings.push_back({.rule = QRule::kQ1,
                              .level = Verdict::kError,
                              .value = static_cast<double>(t.nan + t.inf),
                              .limit = static_cast<double>(g.nan + g.inf)});
    }
    if (row.evidence.known && row.evidence.exact) {
      ExactFinding(index);
    } else if (states_[index].deviation >= 0) {
      ValueFinding(index);
    }
  }
  TakeOut(row);
  const bool files_missing = row.gate == Gate::kNoTargetFile || row.gate == Gate::kNoGoldenFile;
  if (files_missing && row.evidence.known) row.findings.push_back({.rule = QRule::kN6});
}

void DefaultRules::ExactFinding(size_t index) {
  Row& row = rows_[index];
  if (!row.evidence.differs) return;
  Finding finding{.rule = QRule::kQ2, .level = Verdict::kError, .value = row.evidence.unequal};
  if (!IsResult(index)) {
    finding.level = Verdict::kWarning;
  } else if (entry_input_ > 0) {
    // Comparisons and sorts decide near ties: noise in their inputs may turn a few of them.
    const double few = std::max(1.0, 32 * entry_input_ * row.evidence.elements);
    finding.limit = few;
    if (row.evidence.unequal < 0) {
      finding.level = Verdict::kWarning;
    } else if (row.evidence.unequal <= few) {
      finding.rule = QRule::kN3;
      finding.level = Verdict::kPass;
    }
  }
  row.findings.push_back(finding);
}

void DefaultRules::ValueFinding(size_t index) {
  Row& row = rows_[index];
  const RowState& s = states_[index];
  Finding finding{.value = static_cast<double>(s.deviation), .limit = static_cast<double>(s.limit)};
  if (IsResult(index) && !s.explained) {
    finding.rule = QRule::kQ3;
    finding.level = Verdict::kError;
  } else if (s.deviates) {
    // Whether it is an origin or a consequence is decided with the others of its kind.
    finding.rule = IsResult(index) ? QRule::kQ6 : QRule::kQ4;
    finding.level = IsResult(index) ? Verdict::kWarning : Verdict::kError;
    finding.limit = static_cast<double>(s.noise);
  } else {
    return;
  }
  row.findings.push_back(finding);
}

// R5 and R6 where they are notes or warnings here, and rules that the user switched off.
void DefaultRules::TakeOut(Row& row) const {
  const auto t = RecordedDType(row.target->dtype);
  const auto g = RecordedDType(row.golden->dtype);
  const auto take = [&](Rule rule) {
    return row.rules.EraseIf([&](Rule r) { return r == rule; }) > 0;
  };
  if (t && g && *t != *g) {
    const bool floats = IsFloat(*t) && IsFloat(*g);
    const bool complex = IsComplex(*t) && IsComplex(*g);
    const bool integers = IsExact(*t) && IsExact(*g) && *t != DType::kBool && *g != DType::kBool;
    if ((floats || complex) && take(Rule::kR5)) row.findings.push_back({.rule = QRule::kN1});
    if (integers && take(Rule::kR5)) row.findings.push_back({.rule = QRule::kN2});
  }
  if (row.target->shape != row.golden->shape &&
      SqueezedText(row.target->shape) == SqueezedText(row.golden->shape) && take(Rule::kR6)) {
    row.findings.push_back({.rule = QRule::kQ5, .level = Verdict::kWarning});
  }
  if (!options_.rule_file) return;
  const Leaf& leaf = *row.target;
  for (const config::RuleChange& change : options_.rule_file->limits) {
    if (change.off.empty() || !change.Matches(at_.api, leaf.dtype, leaf.name)) continue;
    const auto is_off = [&](std::string_view id) {
      return std::find(change.off.begin(), change.off.end(), id) != change.off.end();
    };
    row.rules.EraseIf([&](Rule r) { return is_off(RuleId(r)); });
    std::erase_if(row.findings, [&](const Finding& f) { return is_off(RuleId(f.rule)); });
  }
}

// ---- origins and consequences

bool DefaultRules::Hit(const Row& row, Kind kind) const {
  const auto rule = [&](auto... wanted) {
    return std::any_of(row.rules.begin(), row.rules.end(),
                       [&](Rule r) { return ((r == wanted) || ...); });
  };
  const auto finding = [&](auto... wanted) {
    return std::any_of(row.findings.begin(), row.findings.end(), [&](const Finding& f) {
      return f.level != Verdict::kPass && ((f.rule == wanted) || ...);
    });
  };
  switch (kind) {
    case kValue:
      return rule(Rule::kR2t, Rule::kR2s, Rule::kR7t, Rule::kR7s, Rule::kR8Error,
                  Rule::kR8Warning) ||
             finding(QRule::kQ2, QRule::kQ3, QRule::kQ4, QRule::kQ6);
    case kClass:
      return rule(Rule::kR1, Rule::kClass) || finding(QRule::kQ1);
    case kGrad:
      return rule(Rule::kR3);
    case kShape:
      return rule(Rule::kR5, Rule::kR6) || finding(QRule::kQ5);
    case kKinds:
      break;
  }
  return false;
}

// What a leaf holds, whatever its name and shape: a view of a wrong tensor is known again by it.
std::string DefaultRules::FingerprintOf(size_t row) const {
  const Leaf& leaf = *rows_[row].target;
  if (mode_ == Mode::kMd5) return std::string(leaf.md5);
  double value[4] = {};
  const CellValue* cells[4] = {&leaf.max, &leaf.min, &leaf.mean, &leaf.norm};
  for (size_t i = 0; i < 4; ++i) {
    if (ClassOf(*cells[i], value[i]) == CellClass::kOther) return {};
  }
  return {reinterpret_cast<const char*>(value), sizeof value};
}

void DefaultRules::MarkConsequences(RowGroup group) {
  const std::string& key = at_.key;
  const bool forward = at_.forward;
  bool inputs_hit[kKinds] = {};
  if (!forward) {
    const auto twin = forward_hit_.find(key);
    const bool before = twin != forward_hit_.end() ? twin->second : false;
    inputs_hit[kValue] = inputs_hit[kClass] = before;
    // Gradients of parameters gather what all calls before them left.
    if (at_.parts.direction == Direction::kGrad) {
      for (size_t k = 0; k < kKinds; ++k) inputs_hit[k] = first_[k] != 0;
    }
  }
  bool any = false;
  for (const bool results : {false, true}) {
    for (size_t i = group.first; i < group.last; ++i) {
      if (IsResult(i) != results || !Paired(rows_[i])) continue;
      for (const Kind kind : {kValue, kClass, kGrad, kShape}) {
        if (!Hit(rows_[i], kind)) continue;
        MarkKind(i, kind, inputs_hit[kind]);
        if (!Hit(rows_[i], kind)) continue;
        if (!results) inputs_hit[kind] = true;
        any = any || kind == kValue || kind == kClass;
      }
    }
  }
  if (forward && any) forward_hit_[key] = true;
}

// Rounding that grew beyond the noise level without anything wrong before it: nothing is said, also
// not where the result comes in again. True when no other finding about values is left.
bool DefaultRules::Tolerate(size_t index, const std::string& print, bool inputs_hit) {
  Row& row = rows_[index];
  const auto take = [&](QRule rule) {
    return std::erase_if(row.findings, [&](const Finding& f) { return f.rule == rule; }) > 0;
  };
  bool taken = false;
  if (IsResult(index)) {
    taken = !inputs_hit && !seen_[kValue].contains(print) && take(QRule::kQ6);
    if (taken) tolerated_.insert(print);
  } else {
    taken = tolerated_.contains(print) && take(QRule::kQ4);
  }
  return taken && !Hit(row, kValue);
}

void DefaultRules::MarkKind(size_t index, Kind kind, bool inputs_hit) {
  Row& row = rows_[index];
  const std::string print = FingerprintOf(index);
  if (kind == kValue && Tolerate(index, print, inputs_hit)) return;
  const auto known = print.empty() ? seen_[kind].end() : seen_[kind].find(print);
  uint32_t origin = known != seen_[kind].end() ? known->second : 0;
  const State state = row.target->state;
  if (state != State::kParameters && origin == 0) {
    // Inputs come from somewhere before; results are as bad as their inputs.
    if (IsResult(index) ? inputs_hit : first_[kind] != 0) origin = first_[kind];
    if (IsResult(index) && inputs_hit && origin == 0) origin = static_cast<uint32_t>(index) + 1;
  }
  const auto me = static_cast<uint32_t>(index) + 1;
  if (!print.empty()) seen_[kind].try_emplace(print, origin != 0 ? origin : me);
  if (first_[kind] == 0) first_[kind] = me;
  // A scalar argument is written in the program: it follows from nothing.
  const bool argument = std::find(row.rules.begin(), row.rules.end(), Rule::kR4) != row.rules.end();
  if (origin == 0 || argument) return;
  row.consequence = true;
  const std::string_view from = origin == me ? std::string_view() : rows_[origin - 1].target->name;
  for (Finding& f : row.findings) {
    if (f.rule == QRule::kQ4) {
      f.rule = QRule::kQ6;
      f.level = Verdict::kWarning;
    }
    // As bad as what came in: no error of its own.
    const bool result = f.rule == QRule::kQ2 || f.rule == QRule::kQ3;
    if (result && f.level == Verdict::kError) f.level = Verdict::kWarning;
    if (result || f.rule == QRule::kQ6) f.origin = from;
  }
  if (!row.rules.empty()) row.findings.push_back({.rule = QRule::kN4, .origin = from});
}

}  // namespace msprobe::compare
