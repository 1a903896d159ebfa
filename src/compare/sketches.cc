#include "compare/sketches.h"

#include <fmt/format.h>

#include "compare/statistics.h"

namespace msprobe::compare {
namespace {

double NormOf(const Leaf& leaf) {
  double norm = 0;
  return ClassOf(leaf.norm, norm) == CellClass::kNumber ? norm
                                                        : std::numeric_limits<double>::quiet_NaN();
}

void NoteBad(const Side& side, std::string_view which, std::vector<std::string>& notes) {
  if (side.bad_sketches == 0) return;
  notes.push_back(fmt::format("{}: {} sketches cannot be read, the first is {}", which,
                              side.bad_sketches, side.bad_sketch));
}

SketchPair::Bits BitsOf(const Leaf& target, const Leaf& golden) {
  using Bits = SketchPair::Bits;
  if (target.more->hash64.empty() || golden.more->hash64.empty()) return Bits::kUnknown;
  // The hash is of bits: those of another type or number of elements cannot be the same.
  const bool equal = target.more->hash64 == golden.more->hash64 && target.dtype == golden.dtype &&
                     target.shape == golden.shape;
  return equal ? Bits::kEqual : Bits::kDifferent;
}

}  // namespace

metrics::Sketch KeptSketch::Expanded() const {
  metrics::Sketch out = head;
  out.values.assign(values.begin(), values.end());
  return out;
}

bool CompareSketches(const Comparison::Store& store, std::vector<Row>& rows,
                     std::vector<std::string>& notes) {
  NoteBad(store.target, "target", notes);
  NoteBad(store.golden, "golden", notes);
  uint64_t refused = 0;
  std::string first;
  for (Row& row : rows) {
    if (!row.target || !row.golden || row.gate != Gate::kCompared) continue;
    const SketchPair::Bits bits = BitsOf(*row.target, *row.golden);
    if (bits != SketchPair::Bits::kUnknown) row.sketch.Edit().bits = bits;
    if (row.target->sketch < 0 || row.golden->sketch < 0) continue;
    const auto at = [](const Side& side, int64_t i) {
      return side.sketches[static_cast<size_t>(i)].Expanded();
    };
    Result<metrics::SketchDistance> distance = metrics::Distance(
        at(store.target, row.target->sketch), at(store.golden, row.golden->sketch),
        NormOf(*row.target), NormOf(*row.golden));
    if (distance.ok()) {
      row.sketch.Edit().distance = *distance;
    } else if (refused++ == 0) {
      first = fmt::format("{}: {}", row.target->name, distance.error().ToString());
    }
  }
  if (refused > 0) {
    notes.push_back(fmt::format("the sketches of {} pairs cannot be compared, the first is {}",
                                refused, first));
  }
  return !store.target.sketches.empty() && !store.golden.sketches.empty();
}

}  // namespace msprobe::compare
