#include "compare/first_bad.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compare/default_rules.h"
#include "compare/judge.h"

namespace msprobe::compare {
namespace {

bool IsWrong(const Row& row) {
  const bool wrong = row.verdict == Verdict::kError || row.verdict == Verdict::kWarning ||
                     row.accuracy == OldAccuracy::kNo || row.result == OldResult::kWarning ||
                     row.result == OldResult::kDifferent;
  return wrong && row.target && !IsExempt(row);
}

// Whether the report of this face shows the row as bad.
bool IsFlagged(const Row& row, Face face) {
  if (face == Face::kNew) return row.verdict == Verdict::kError || row.verdict == Verdict::kWarning;
  return row.accuracy == OldAccuracy::kNo || row.result == OldResult::kWarning ||
         row.result == OldResult::kDifferent;
}

// Gradients and single saves are results without inputs of their own.
bool IsResult(const Row& row) {
  const State state = row.target->state;
  return state == State::kOutput || state == State::kParametersGrad || state == State::kDebug;
}

int Rank(const Entry& entry) {
  switch (ParseEntryName(entry.name).direction) {
    case Direction::kForward:
    case Direction::kOther:
      return 0;
    case Direction::kBackward:
      return 1;
    case Direction::kGrad:
      return 2;
  }
  return 0;
}

// "output.0" of "Torch.add.0.forward.output.0".
std::string_view Short(const Row& row, const Entry& entry) {
  std::string_view name = row.target->name;
  if (name.starts_with(entry.name) && name.size() > entry.name.size()) {
    name.remove_prefix(entry.name.size() + 1);
  }
  return name;
}

std::string CellText(const CellValue& cell) {
  switch (cell.kind()) {
    case CellValue::Kind::kBool:
      return cell.as_bool() ? "True" : "False";
    case CellValue::Kind::kInt:
      return fmt::format("{}", cell.as_int());
    case CellValue::Kind::kDouble:
      return fmt::format("{:.6g}", cell.as_double());
    case CellValue::Kind::kText:
    case CellValue::Kind::kBigInt:
      return std::string(cell.text().substr(0, 40));
    case CellValue::Kind::kNone:
    case CellValue::Kind::kUnknown:
      return "None";
  }
  return {};
}

// How far a row is off, as one figure: the relative L2 error of its elements, or that of its
// recorded norm. < 0: not known.
double Distance(const Row& row, Mode mode) {
  if (!row.golden) return -1;
  if (mode == Mode::kTensor) {
    if (row.gate == Gate::kZeroDim)
      return std::isnan(row.metrics->max_rel) ? -1 : row.metrics->max_rel;
    return row.gate == Gate::kCompared ? row.relative_l2 : -1;
  }
  const StatCell norm = NormErrorCell(row);
  switch (norm.kind) {
    case StatCell::Kind::kPercent:
      return norm.value / 100;
    case StatCell::Kind::kZeroText:
      return 0;
    case StatCell::Kind::kInf:
      return HUGE_VAL;
    default:
      return -1;
  }
}

// Found wrong by the default rules, and not because of something before it.
bool IsOrigin(const Row& row) {
  return (row.verdict == Verdict::kError || row.verdict == Verdict::kWarning) && !row.consequence &&
         row.target && !IsExempt(row);
}

bool Has(const Row& row, Rule rule) {
  return std::find(row.rules.begin(), row.rules.end(), rule) != row.rules.end();
}

std::string WhatIsWrong(const Row& row, const Entry& entry, Mode mode) {
  const std::string_view name = Short(row, entry);
  const Leaf& t = *row.target;
  const Leaf* g = row.golden;
  if (Has(row, Rule::kR1)) {
    return fmt::format("{}: NaN or infinity (max {}, min {}) where the golden side has none", name,
                       CellText(t.max), CellText(t.min));
  }
  if (Has(row, Rule::kClass)) {
    return fmt::format(
        "{}: NaN or infinity in other places or of other sign than on the golden side", name);
  }
  if (mode == Mode::kMd5) {
    return fmt::format("{}: checksum {} against {}", name, t.md5, g ? g->md5 : "none");
  }
  if (Has(row, Rule::kR4))
    return fmt::format("{}: {} against {}", name, CellText(t.max), CellText(g->max));
  if (Has(row, Rule::kR6)) return fmt::format("{}: shape {} against {}", name, t.shape, g->shape);
  for (const Finding& f : row.findings) {
    if (f.level == Verdict::kPass) continue;
    return fmt::format("{}: {}", name, FindingText(f));
  }
  if (const double d = Distance(row, mode); d > 0) {
    const std::string_view what = mode == Mode::kTensor ? "L2 error" : "difference of the norms";
    return fmt::format("{}: relative {} {:.2g}", name, what, d);
  }
  if (Has(row, Rule::kR5)) return fmt::format("{}: {} against {}", name, t.dtype, g->dtype);
  if (Has(row, Rule::kR3)) return fmt::format("{}: requires_grad differs", name);
  if (!g) return fmt::format("{}: no golden row", name);
  return fmt::format("{}: max {} against {}, min {} against {}", name, CellText(t.max),
                     CellText(g->max), CellText(t.min), CellText(g->min));
}

std::string InputsAgree(const std::vector<Row>& rows, RowGroup group, Mode mode) {
  double worst = -1;
  size_t inputs = 0, equal_sums = 0;
  for (size_t i = group.first; i < group.last; ++i) {
    if (IsResult(rows[i]) || !rows[i].golden) continue;
    ++inputs;
    equal_sums += rows[i].target->md5 == rows[i].golden->md5;
    worst = std::max(worst, Distance(rows[i], mode));
  }
  if (inputs == 0) return {};
  if (mode == Mode::kMd5)
    return fmt::format(", {} of {} inputs have equal checksums", equal_sums, inputs);
  if (worst < 0) return ", no input has a figure";
  return worst == 0 ? ", inputs agree exactly" : fmt::format(", inputs agree to {:.2g}", worst);
}

}  // namespace

namespace {

// The row that tells most about an origin: an argument, else a wrong result, else what came in.
size_t Telling(const std::vector<Row>& rows, RowGroup group) {
  size_t best = group.last;
  int best_rank = 3;
  for (size_t i = group.first; i < group.last; ++i) {
    if (!IsOrigin(rows[i])) continue;
    const int rank = Has(rows[i], Rule::kR4) ? 0 : (IsResult(rows[i]) ? 2 : 1);
    if (rank >= best_rank) continue;
    best = i;
    best_rank = rank;
  }
  return best;
}

std::optional<FirstBad> FirstOrigin(const std::vector<Row>& rows, const Side& target, Mode mode,
                                    Face face) {
  for (const RowGroup& group : ExecutionOrder(GroupRows(rows), rows, target)) {
    const size_t i = Telling(rows, group);
    if (i == group.last) continue;
    const Entry& entry = target.entries[rows[i].target->entry];
    std::string reason = WhatIsWrong(rows[i], entry, mode);
    if (IsResult(rows[i])) reason += InputsAgree(rows, group, mode);
    if (face == Face::kOld && !IsFlagged(rows[i], face)) {
      reason += "; the verdict column of this report passes the row";
    }
    return FirstBad{.entry = entry.name,
                    .row = std::string(rows[i].target->name),
                    .reason = std::move(reason),
                    .row_index = i};
  }
  return std::nullopt;
}

}  // namespace

std::optional<FirstBad> FindFirstBad(const std::vector<Row>& rows, const Side& target, Mode mode,
                                     const Options& options) {
  const Face face = options.face;
  if (options.rules == RuleSet::kDefault) return FirstOrigin(rows, target, mode, face);
  const std::vector<RowGroup> groups = GroupRows(rows);
  const auto entry_of = [&](const RowGroup& g) -> const Entry& {
    return target.entries[rows[g.first].target->entry];
  };
  std::optional<FirstBad> fallback;
  int fallback_rank = 3;
  for (int rank = 0; rank < 3; ++rank) {
    // Gradients have no inputs of their own: they explain nothing that went wrong before them.
    if (rank == 2 && fallback) break;
    for (const RowGroup& group : groups) {
      size_t result = group.last, any = group.last, argument = group.last;
      bool inputs_wrong = false;
      for (size_t i = group.last; i-- > group.first;) {
        if (!IsWrong(rows[i])) continue;
        any = i;
        if (IsResult(rows[i])) {
          result = i;
        } else if (Has(rows[i], Rule::kR4)) {
          argument = i;  // the call was written differently: a cause, not an inherited error
        } else {
          inputs_wrong = true;
        }
      }
      if (any == group.last || Rank(entry_of(group)) != rank) continue;
      const Entry& entry = entry_of(group);
      const size_t cause = argument != group.last ? argument : result;
      if (cause != group.last && !inputs_wrong) {
        std::string reason = WhatIsWrong(rows[cause], entry, mode);
        if (cause == result) reason += InputsAgree(rows, group, mode);
        if (!IsFlagged(rows[cause], face)) reason += "; the rules of this report pass the row";
        return FirstBad{.entry = entry.name,
                        .row = std::string(rows[cause].target->name),
                        .reason = std::move(reason),
                        .row_index = cause};
      }
      if (!fallback || rank < fallback_rank) {
        fallback_rank = rank;
        fallback =
            FirstBad{.entry = entry.name,
                     .row = std::string(rows[any].target->name),
                     .reason = WhatIsWrong(rows[any], entry, mode) +
                               "; no wrong output has right inputs, this is the first wrong row",
                     .row_index = any};
      }
    }
  }
  return fallback;
}

}  // namespace msprobe::compare
