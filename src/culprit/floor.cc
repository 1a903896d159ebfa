#include "culprit/floor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "json/json.h"

namespace msprobe::culprit {

Result<ScoreModel> LearnFloor(std::vector<double> scores, const ScoreModel& before) {
  std::erase_if(scores, [](double s) { return !std::isfinite(s); });
  if (scores.size() < kLeastScores) {
    return Error(ErrorCode::kNothingToDo,
                 fmt::format("{} scores of clean replays are too few; at least {} are needed",
                             scores.size(), kLeastScores));
  }
  ScoreModel out = before;
  double logs = 0;
  double above = 0;
  double largest = 0;
  for (const double s : scores) {
    largest = std::max(largest, s);
    if (s <= 1) continue;
    logs += std::log(s);
    ++above;
  }
  // Hill's estimator above 1. With few scores above it the calibrated tail is kept, and only its
  // weight is raised to what was seen.
  constexpr double kEnough = 10;
  out.tail = std::max(above, 1.0) / static_cast<double>(scores.size());
  if (above >= kEnough) out.exponent = above / logs;
  constexpr double kMargin = 1.15;
  out.limit = std::max(before.limit, kMargin * largest);
  out.learned = scores.size();
  return out;
}

std::string FloorJson(const ScoreModel& model, const std::vector<std::string>& runs) {
  std::string out;
  json::Writer w(out, 2);
  w.StartObject();
  w.Key("format_version").Int(1);
  w.Key("learned_from").StartArray();
  for (const std::string& run : runs) w.String(run);
  w.EndArray();
  w.Key("entries").Uint(model.learned);
  w.Key("limit").Double(model.limit);
  w.Key("contrast").Double(model.contrast);
  w.Key("tail").Double(model.tail);
  w.Key("exponent").Double(model.exponent);
  w.EndObject();
  return out + "\n";
}

Result<ScoreModel> ReadFloor(const std::string& path, const ScoreModel& before) {
  MSPROBE_ASSIGN(const json::Document document, json::ParseDocumentFile(path));
  const json::Value& root = document.root();
  ScoreModel out = before;
  double entries = 0;
  struct Constant {
    std::string_view key;
    double least, most;
    double* value;
  };
  // Outside these a constant makes every call wrong, or none.
  const Constant constants[] = {
      {"entries", static_cast<double>(kLeastScores), 1e15, &entries},
      {"limit", 1, 1e9, &out.limit},
      {"contrast", 1, 1e9, &out.contrast},
      {"tail", 1e-15, 1, &out.tail},
      {"exponent", 0.1, 1e3, &out.exponent},
  };
  for (const Constant& c : constants) {
    const json::Value* v = root.is_object() ? root.Find(c.key) : nullptr;
    const double x = v != nullptr && v->is_number() ? v->as_double() : std::nan("");
    if (!(x >= c.least && x <= c.most)) {
      return Error(ErrorCode::kMalformed,
                   fmt::format("{} is no number from {:g} to {:g}", c.key, c.least, c.most))
          .At(path)
          .Hint("the file is written by msprobe compare --learn-floor");
    }
    *c.value = x;
  }
  out.learned = static_cast<uint64_t>(entries);
  return out;
}

}  // namespace msprobe::culprit
