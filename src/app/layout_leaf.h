// One tensor of a model whose parts several ranks recorded: shapes, statistics and elements of the
// whole from those of the parts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/layout_config.h"
#include "json/json.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

namespace msprobe::app {

// What was recorded of a tensor, or follows from it. Figures that do not follow are absent.
struct Recorded {
  Shape shape;
  std::optional<double> max, min, mean, norm;
};

// Joins parts along one dimension of a mesh. Axis: the extreme extremes, the mean weighed by
// elements, the root of the sum of squared norms. Sum: the mean only, which is linear. nullopt when
// the shapes do not fit. kGuess is not taken.
std::optional<Recorded> JoinRecorded(const std::vector<Recorded>& parts, const config::Held& held);

// How far two wholes are apart, by the figures that both have: the largest |a - b| / (|a| + |b|),
// 0 to 1; infinity for other shapes, 1 when no figure is common.
double RecordedDistance(const Recorded& a, const Recorded& b);

// The ways a tensor of these parts may be held along a dimension: same, each axis, sum, as far as
// the shapes allow.
std::vector<config::Held> Candidates(const std::vector<Recorded>& parts);

// Elements in row-major order. Sums are made in double and kept as float32 (float64 stays).
struct Elements {
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<std::byte> bytes;
};
Result<Elements> ReadElements(const std::string& path);
Result<Elements> JoinElements(std::vector<Elements> parts, const config::Held& held);

// Norm of the difference over that of `b`, in double; elements that are not finite on both sides
// count as equal, on one side as far apart (infinity). Infinity for other shapes; 0 of nothing.
double ElementDistance(const Elements& a, const Elements& b);

// Writes the record of the whole with the members of a part's, in their order: shape and figures
// are the whole's (a figure that does not follow from the parts is null), what else depends on
// elements stays only where each rank holds all. `file`: of its elements, or "".
void WriteJoined(json::Writer& w, const json::Value& part, const Recorded& whole,
                 const std::string& file, const std::vector<config::Held>& held);

}  // namespace msprobe::app
