// The advisor of the old face (compare.md 13): what to look at after the first row that fails.
#pragma once

#include <optional>
#include <string>

#include "compare/compare.h"

namespace msprobe::app {

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

// The file: `Line: `, `Suspect Nodes: `, `Expert Advice: `, each on a line of its own.
std::string AdvisorText(const AdvisorFinding& finding);

}  // namespace msprobe::app
