// compare_summary_{ts}.json and the answer in words (decisions.md 3, compare.md D35).
#pragma once

#include <string>

#include "app/compare_app.h"

namespace msprobe::app {

// The JSON text: format_version, tool_version, command, options, inputs, started, seconds, counts,
// first_bad, path, ranks, messages.
std::string SummaryJson(const CompareOptions& options, const CompareRun& run);

// What a person wants to know first, in at most 20 lines ending with '\n': the first bad entry,
// rows per verdict, what was not compared and why, where the reports are. Names are made visible
// for terminals.
std::string AnswerText(const CompareOptions& options, const CompareRun& run);

// One line without line feed: "pass 9, warning 0, error 2, unmatched 1, total 12, first_bad …, path
// …".
std::string ClosingLine(const CompareOptions& options, const CompareRun& run);

}  // namespace msprobe::app
