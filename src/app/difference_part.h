// The pair of one rank in the search for the first difference (analysis_app.h), compared here or by
// an engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/analysis_app.h"
#include "app/compare_fields.h"
#include "app/item_stream.h"
#include "app/json_lines.h"
#include "compare/first_difference.h"

namespace msprobe::app {

// An entry that the search over ranks may end with or needs to order them: communication, and the
// first bad entry behind each.
struct Candidate {
  std::string name;
  bool bad = false, communication = false;
  compare::CommArguments comm;
  std::string reason, found;  // of bad ones; its text in the report of the search
};
template <class Archive>
void Fields(Archive& a, Candidate& c) {
  a(c.name, c.bad, c.communication, c.comm, c.reason, c.found);
}

struct DifferenceHead {
  std::optional<Error> error;
  AnalysisRank rank;
  std::vector<Candidate> candidates;
  std::vector<Message> messages;
  std::vector<BlobHead> blobs;
};
template <class Archive>
void Fields(Archive& a, DifferenceHead& h) {
  a(h.error, h.rank, h.candidates, h.messages, h.blobs);
}

struct DifferencePart {
  std::optional<DifferenceHead>
      remote;  // what a worker gave, instead of `comparison` and `entries`
  RankJob job;
  int64_t rank = 0;
  std::shared_ptr<const compare::Comparison> comparison;
  std::vector<compare::EntryDifference> entries;
  std::string report;
  std::optional<Error> error;
};

// Fills `remote` or `error` of all parts with options.engine; reports and lines are written here,
// in the order of the parts.
Status FindDifferencesWithEngine(const CompareOptions& options, std::vector<DifferencePart>& parts,
                                 JsonLines& lines, LogSink& log, const CancelToken* cancel);

}  // namespace msprobe::app
