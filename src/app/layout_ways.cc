#include "app/layout_ways.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace msprobe::app {
namespace {

using config::Held;

constexpr double kSumPenalty = 0.02;  // a sum is known by its mean alone
constexpr size_t kMostWays = 4096;

}  // namespace

std::optional<Recorded> FoldRecorded(const std::vector<Recorded>& parts, const config::Mesh& mesh,
                                     const std::vector<Held>& held) {
  return Fold(parts, mesh, held,
              [](std::vector<Recorded> group, const Held& h) { return JoinRecorded(group, h); });
}

std::vector<Way> WaysOf(const std::vector<Recorded>& parts, const config::Mesh& mesh,
                        const std::vector<Held>& rule) {
  std::vector<Way> out = {{{}, {}, 0}};
  for (size_t d = 0; d < mesh.size(); ++d) {
    std::vector<Way> next;
    for (const Way& way : out) {
      std::vector<Held> choices = {rule[d]};
      if (rule[d].how == Held::How::kGuess) {
        // The parts as they are after the dimensions before: those of the first group.
        size_t before = 1;
        for (size_t k = 0; k < d; ++k) before *= static_cast<size_t>(mesh[k].second);
        std::vector<Recorded> group;
        for (size_t i = 0; i < static_cast<size_t>(mesh[d].second); ++i) {
          group.push_back(parts[i * before]);
        }
        choices = Candidates(group);
      }
      for (const Held& h : choices) {
        Way longer = way;
        longer.held.push_back(h);
        longer.cost += 1e-6 * static_cast<double>(next.size());
        if (h.how == Held::How::kSum) longer.cost += kSumPenalty;
        if (next.size() < kMostWays) next.push_back(std::move(longer));
      }
    }
    out = std::move(next);
  }
  std::erase_if(out, [&](Way& way) {
    const std::optional<Recorded> whole = FoldRecorded(parts, mesh, way.held);
    if (whole) way.whole = *whole;
    return !whole;
  });
  return out;
}

namespace {

bool HoldAlike(const Way& target, const config::Mesh& target_mesh, const Way& golden,
               const config::Mesh& golden_mesh) {
  for (size_t i = 0; i < target_mesh.size(); ++i) {
    for (size_t k = 0; k < golden_mesh.size(); ++k) {
      const auto& [name, size] = target_mesh[i];
      if (name != golden_mesh[k].first || size == 1 || golden_mesh[k].second == 1) continue;
      if (!(target.held[i] == golden.held[k])) return false;
    }
  }
  return true;
}

}  // namespace

std::vector<Choice> BestPairs(const WaysOfSide& target, const WaysOfSide& golden, double room) {
  std::vector<Choice> out;
  double best = HUGE_VAL;
  for (const Way& t : target.ways) {
    for (const Way& g : golden.ways) {
      const double distance = RecordedDistance(t.whole, g.whole);
      const double cost = distance + t.cost + g.cost;
      if (!(cost < HUGE_VAL) || !HoldAlike(t, target.mesh, g, golden.mesh)) continue;
      best = std::min(best, cost);
      out.push_back({&t, &g, distance, cost});
    }
  }
  std::erase_if(out, [&](const Choice& c) { return c.cost > best + room; });
  std::stable_sort(out.begin(), out.end(),
                   [](const Choice& a, const Choice& b) { return a.cost < b.cost; });
  return out;
}

}  // namespace msprobe::app
