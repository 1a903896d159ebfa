// The use case "one dump, across its ranks": the replica that is unlike the others, and collectives
// whose results are not what their inputs give.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "compare/replicas.h"

namespace msprobe::app {

struct RanksOptions {
  std::string input_dir;  // a step folder
  std::string output_dir = "./output";
  std::vector<std::vector<int64_t>> groups;  // replicas; empty: found by their parameters
  unsigned workers = 0;
  std::vector<std::pair<std::string, std::string>> echo;
};

// A collective that contradicts itself across ranks.
struct BadCollective {
  int64_t rank = 0;
  std::string entry, leaf;
  double deviation = 0, limit = 0;  // of the result, relative to what the inputs of all ranks give
};

struct RanksRun {
  std::vector<std::string> ranks, left_out;  // folders; with the reason
  compare::ReplicaReport replicas;
  std::vector<BadCollective> collectives;
  uint64_t judged = 0, not_judged = 0;                           // collectives of all ranks
  std::vector<std::pair<std::string, uint64_t>> why_not_judged;  // most frequent first
  std::vector<std::string> messages;
  std::string summary_path;
  bool partial = false;
};

// Writes ranks_summary_{time}.json. Errors: kNothingToDo with fewer than two ranks that can be
// read; those of the folders.
Result<RanksRun> ReadAcrossRanks(const RanksOptions& options, LogSink& log, ProgressSink& progress,
                                 const CancelToken* cancel);

std::string RanksAnswer(const RanksRun& run);
std::string RanksClosingLine(const RanksRun& run);

}  // namespace msprobe::app
