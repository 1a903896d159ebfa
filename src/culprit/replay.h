// Replays of recorded calls in float64. They need PyTorch and run in Python
// (msprobe.precheck.culprit); this side chooses the calls and reads the scores.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "culprit/run.h"

namespace msprobe::culprit {

// Jobs as JSON text in, scores as JSON text out. Must not throw. An error means that nothing can be
// replayed here (no Python, no torch): the search goes on by growth, and says so.
using ReplayFn = std::function<Result<std::string>(const std::string& jobs)>;

struct LeafScore {
  std::string leaf;
  double score = 0;       // max |y - ref(x)| / E; infinity where value classes differ
  double rms = 0;         // root mean square of the same
  double introduced = 0;  // |y - ref(x)|, Euclidean
  double norm = 0;        // |ref(x)|
  // With the other side: |ref(x) - ref(x')|, amplification and the effect on the loss. NaN:
  // unknown.
  double inherited = kUnknown, amplification = kUnknown, impact = kUnknown;
};

struct EntryScore {
  std::vector<LeafScore> leaves;
  std::string reason;  // why there are none
  double Worst() const;
  const LeafScore* WorstLeaf() const;  // null: none
};

struct ReplayCall {
  std::string base;   // Functional.linear.3
  std::string other;  // that call in the other dump, when both are wanted
  bool forward = false, backward = false;
};

// A parameter's gradient as the sum over calls.
struct ParameterJob {
  std::string key;  // "Module.fc.Linear.parameters_grad:weight", for the answer
  std::string entry, leaf, data_name, dtype;
  Shape shape;
  struct Use {
    std::string base, input;  // a call and the leaf that is the parameter
  };
  std::vector<Use> uses;
};

struct ReplayJobs {
  std::string dump, other;  // dump.json; other: of the other side, or ""
  double limit = 4;         // scores above half of it get probes
  std::vector<ReplayCall> calls;
  std::vector<ParameterJob> parameters;
};

struct ReplayScores {
  std::unordered_map<std::string, EntryScore> entries;  // "Functional.linear.3.forward", or a key
};

std::string JobsJson(const ReplayJobs& jobs);
// Sends jobs and reads the answer. Errors: those of the function; kMalformed.
Result<ReplayScores> Replayed(const ReplayFn& replay, const ReplayJobs& jobs);
// kMalformed: the answer is none.
Result<ReplayScores> ReadScores(const std::string& text);

}  // namespace msprobe::culprit
