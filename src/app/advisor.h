// The advisor of the old face (compare.md 13): what to look at after the first row that fails.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compare/compare.h"

namespace msprobe::app {

// Rows that were not compared, by reason, with the first names.
struct NotCompared {
  std::string reason;
  uint64_t rows = 0;
  std::vector<std::string> entries;  // up to 100 entry names, in report order, without repetition
};

// Which advice (first column of the table in compare.md 13).
enum class Advice : uint8_t {
  kNone,              // nothing failed
  kNothingCompared,   // no row was compared (D9)
  kForwardInput,      // 1a
  kForward,           // 1b
  kBackwardInput,     // 1c
  kBackward,          // 1d
  kNondeterministic,  // 2
};

struct AdvisorFinding {
  std::optional<uint64_t> line;  // 0-based data row; the spreadsheet row is line + 2
  std::string node;              // NPU Name of that row
  Advice advice = Advice::kNone;
};

// Scans rows in report order for the first `No`, `Warning` or `Different`; rows that were not
// compared are never advised on.
AdvisorFinding Advise(const compare::Comparison& comparison);

// What the file says beside the finding.
struct AdvisorContext {
  std::string target_json, golden_json;
  const compare::FirstBad* first_bad = nullptr;  // null: none
  std::string_view culprit_kind;                 // set: first_bad is the culprit, of this kind
  std::vector<NotCompared> not_compared;
};

// The file: `Line: `, `Suspect Nodes: `, `Expert Advice: ` as upstream has them, each on a line of
// its own; then the row of the spreadsheet, the first bad entry, what was not compared (a line for
// each reason), and what to run next.
std::string AdvisorText(const AdvisorFinding& finding, const AdvisorContext& context);

}  // namespace msprobe::app
