// Naming the operator at fault (culprit.md): tells the error that an operator introduces from the
// error that it inherits, and names the first culprit of one pair of dumps.
#pragma once

#include <string>

#include "base/result.h"
#include "culprit/finding.h"
#include "culprit/replay.h"
#include "culprit/score_model.h"

namespace msprobe::culprit {

struct Input {
  std::string target_json, golden_json;  // golden_json empty: one dump only (rules 7 and 8)
  // From the steps before, of the same rank: the largest deviation that was noise, and whether
  // something was found (what enters this step is a consequence then).
  double front = 0;
  bool found_before = false;
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

// Scores of clean replays: refits tail and exponent of the p-value, and the limit, from runs that
// are known to be right (Hill 1975 over scores above 1). At least kLeastScores of them.
inline constexpr size_t kLeastScores = 100;
Result<ScoreModel> LearnFloor(std::vector<double> scores, const ScoreModel& before);

}  // namespace msprobe::culprit
