// Naming the operator at fault, beside the reports of a comparison (docs/culprit.md).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/compare_app.h"
#include "base/log.h"

namespace msprobe::app {

class StepCollectives;  // culprit_ranks.h

// Searches every compared pair of `run`, step after step of each rank, and sets `culprit` of its
// outcome; what is found becomes its first_bad. Failures are notes: reports do not depend on it. A
// search that is cancelled says nothing of its pair.
void FindCulprits(const CompareOptions& options, CompareRun& run, LogSink& log,
                  const CancelToken* cancel);

// The same pair by pair, as they are compared: the steps of a rank in their order.
class CulpritSearch {
 public:
  // `across`: for collectives over ranks; null: each rank is judged by itself.
  explicit CulpritSearch(StepCollectives* across = nullptr) : across_(across) {}
  void Run(const CompareOptions& options, RankOutcome& out, LogSink& log,
           const CancelToken* cancel);
  struct Past {  // of one rank, from the steps before
    double front = 0;
    double usual = -1;
    bool found = false;
  };

 private:
  StepCollectives* across_;
  std::map<std::string, Past> ranks_;
};

// Sets rows_of_entries and row_names: where the entries stand in the report.
void IndexEntries(const compare::Comparison& comparison, RankOutcome& out);

// The lines about the culprit in the answer of a comparison; none when no pair was searched.
std::vector<std::string> CulpritLines(const CompareRun& run);

// The pair whose culprit stands for the run: of the first step with one, the smallest row. nullopt:
// nothing was found.
std::optional<size_t> FirstFound(const std::vector<RankOutcome>& ranks);

// True when every pair was searched and nothing was found: what could not be judged is no answer.
bool FoundNoCulprit(const CompareRun& run);

// The report that stands for the run: that of FirstFound(), else of the first pair searched; null
// when none was.
const culprit::Report* CulpritOf(const CompareRun& run);

}  // namespace msprobe::app
