// Naming the operator at fault (culprit.md): tells the error that an operator introduces from the
// error that it inherits, and names the first culprit of one pair of dumps.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "culprit/collectives.h"
#include "culprit/finding.h"
#include "culprit/floor.h"
#include "culprit/replay.h"
#include "culprit/score_model.h"

namespace msprobe::culprit {

struct Input {
  std::string target_json, golden_json;
  // From the steps before, of the same rank: the largest deviation that was noise, and whether
  // something was found (what enters this step is a consequence then).
  double front = 0;
  bool found_before = false;
  double usual = -1;  // Report::usual of the step before; negative: not known
  // Rule 9: what the inputs of all ranks say of this rank's collectives. Asked at most once, when
  // the target has any; empty: the rank is judged by itself.
  std::function<CollectivesOfRank()> collectives = {};
};

struct Options {
  ScoreModel model;
  ReplayFn replay;           // empty: growth instead
  bool loss_impact = false;  // replay both sides of all that differs, for the sum of effects
  // Without evidence in both dumps (Report::evidence) nothing is searched and nothing found.
  bool needs_evidence = false;
};

// Errors: those of reading the dumps. Everything else is a report: what cannot be judged says why.
Result<Report> FindCulprit(const Input& input, const Options& options);

// The same without a golden run: rules 7, 8 and 9 on the target alone. Every recorded call is
// replayed, and named when its own result is further off than its replay explains. There is no
// golden side to tell a flaw of the reference from a fault. kNotJudged: the dump holds no tensors,
// or nothing can be replayed here.
Result<Report> FindInOneDump(const Input& input, const Options& options);

// The scores of all replayed entries of a run, one per entry, in order of execution. Errors: those
// of reading the dump; kUnsupported when nothing can be replayed here.
Result<std::vector<double>> ScoresOf(const std::string& dump_json, const Options& options);

}  // namespace msprobe::culprit
