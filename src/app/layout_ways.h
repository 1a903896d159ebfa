// The ways that the ranks of a mesh may hold one tensor.
#pragma once

#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "app/layout_leaf.h"
#include "config/layout_config.h"

namespace msprobe::app {

// One way to hold a tensor: by dimension of the mesh.
struct Way {
  std::vector<config::Held> held;
  Recorded whole;
  double cost = 0;
};

// Joins neighbours along every dimension in turn.
template <class T, class Join>
auto Fold(std::vector<T> parts, const config::Mesh& mesh, const std::vector<config::Held>& held,
          const Join& join) -> decltype(join(parts, config::Held())) {
  for (size_t d = 0; d < mesh.size(); ++d) {
    std::vector<T> next;
    const auto n = static_cast<size_t>(mesh[d].second);
    for (size_t i = 0; i < parts.size(); i += n) {
      std::vector<T> group(std::make_move_iterator(parts.begin() + static_cast<ptrdiff_t>(i)),
                           std::make_move_iterator(parts.begin() + static_cast<ptrdiff_t>(i + n)));
      auto whole = join(std::move(group), held[d]);
      if (!whole) return whole;
      next.push_back(std::move(*whole));
    }
    parts = std::move(next);
  }
  return std::move(parts.front());
}

// nullopt when the shapes do not fit.
std::optional<Recorded> FoldRecorded(const std::vector<Recorded>& parts, const config::Mesh& mesh,
                                     const std::vector<config::Held>& held);

// All ways that the rule and the shapes leave open, with the whole that each gives; up to 4096.
std::vector<Way> WaysOf(const std::vector<Recorded>& parts, const config::Mesh& mesh,
                        const std::vector<config::Held>& rule);

// A way of either side.
struct Choice {
  const Way* target = nullptr;
  const Way* golden = nullptr;
  double distance = 0, cost = 0;
};

// The pairs of ways whose figures are nearest, and those within `room` of these, likeliest first.
// Along a dimension that both sides have more than one rank of they hold alike.
struct WaysOfSide {
  const std::vector<Way>& ways;
  const config::Mesh& mesh;
};
std::vector<Choice> BestPairs(const WaysOfSide& target, const WaysOfSide& golden, double room);

}  // namespace msprobe::app
