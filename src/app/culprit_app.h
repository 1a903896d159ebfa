// Naming the operator at fault, beside the reports of a comparison (docs/culprit.md).
#pragma once

#include <vector>

#include "app/compare_app.h"
#include "base/log.h"

namespace msprobe::app {

// Searches every compared pair of `run`, step after step of each rank, and sets `culprit` of its
// outcome; what is found becomes its first_bad. Failures are notes: reports do not depend on it.
void FindCulprits(const CompareOptions& options, CompareRun& run, LogSink& log,
                  const CancelToken* cancel);

// Sets rows_of_entries: where the entries stand in the report.
void IndexEntries(const compare::Comparison& comparison, RankOutcome& out);

// The lines about the culprit in the answer of a comparison; none when no pair was searched.
std::vector<std::string> CulpritLines(const CompareRun& run);

// The report that stands for the run: of the first pair with a finding, else of the first one
// searched; null when none was.
const culprit::Report* CulpritOf(const CompareRun& run);

}  // namespace msprobe::app
