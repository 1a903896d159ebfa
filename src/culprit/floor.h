// Constants of the score that were learned from clean runs, and their file.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "culprit/score_model.h"

namespace msprobe::culprit {

// Scores of clean replays: refits tail and exponent of the p-value, and the limit, from runs that
// are known to be right (Hill 1975 over scores above 1). At least kLeastScores of them that are
// finite: else kNothingToDo. The limit is never below that of `before`.
inline constexpr size_t kLeastScores = 100;
Result<ScoreModel> LearnFloor(std::vector<double> scores, const ScoreModel& before);

// The file of --learn-floor: constants, the number of entries, and the runs they come from.
std::string FloorJson(const ScoreModel& model, const std::vector<std::string>& runs);
// Reads it; q stays as it is in `before`. kMalformed, with the key, when a constant is missing or
// out of its range; the errors of reading JSON.
Result<ScoreModel> ReadFloor(const std::string& path, const ScoreModel& before);

}  // namespace msprobe::culprit
