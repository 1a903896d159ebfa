// The texts of a comparison: what the enums of the engine become in cells (compare.md 4.4, 7.2-7.4,
// 10, 12).
#pragma once

#include <string>
#include <string_view>

#include "compare/compare.h"

namespace msprobe::app {

// The message of a gate (compare.md 7.2) with the literal that users' scripts look for; empty for
// kCompared. `face` decides the wording of kUnreadable. kZeroDim gives the 0-d note once, with its
// trailing space.
std::string GateText(const compare::Row& row, compare::Face face);

// What Cosine, MaxAbsErr and MaxRelativeErr add to the message of a compared row (compare.md 7.3),
// in column order.
std::string MetricNotes(const metrics::PairMetrics& m);
// The part of it that MaxAbsErr and MaxRelativeErr add.
std::string NonFiniteNotes(const metrics::PairMetrics& m);

// The Err_message cell. Old face: parts glued together as upstream glues them, highlight reasons
// after line feeds; empty when there is nothing to say; md5 reports have no such column. New face:
// Python's json.dumps of the list of texts, "[]" when empty.
std::string ErrMessage(const compare::Row& row, compare::Mode mode, compare::Face face);

// `Result` of the new face; `Accuracy Reached or Not` (tensor) or `Result` of the old one (may be
// empty).
std::string_view VerdictText(const compare::Row& row, compare::Mode mode, compare::Face face);

// Why a row was not compared, for summaries: "only in the target", "no data file", …; the
// categories are few and fixed.
std::string_view NotComparedReason(const compare::Row& row, compare::Mode mode);

// The file name of a leaf as `Data_name` shows it: the name, "-1" without a file, "N/A" without a
// row.
std::string_view DataName(const compare::Leaf* leaf);

// A recorded figure as Python's str() shows it; empty when it is not known.
std::string FigureText(const compare::CellValue& cell);

std::string_view ModeName(compare::Mode mode);     // tensor, statistics, md5
std::string_view FaceName(compare::Face face);     // old, new
std::string_view RuleSetName(compare::RuleSet r);  // base, default, upstream

}  // namespace msprobe::app
