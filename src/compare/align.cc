#include "compare/align.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <string>
#include <unordered_map>

#include "compare/statistics.h"

namespace msprobe::compare {
namespace {

// Cells of one table of scores, and of all tables together; beyond it stretches are paired
// greedily.
constexpr size_t kMostCells = 4 << 20;
constexpr size_t kMostCellsTogether = 32 << 20;
constexpr size_t kMostValues = 8;
constexpr double kAlike = 0.01;

std::string_view LastPart(std::string_view base) {
  const size_t dot = base.rfind('.');
  return dot == std::string_view::npos ? base : base.substr(dot + 1);
}

// What has to agree for two entries to meet, and what may.
struct Sketch {
  uint32_t token = 0;         // number of: operator or class, direction, shapes of its tensors
  uint32_t base = 0;          // number of: name without call number, direction
  std::vector<double> norms;  // of the first tensors; NaN: not recorded
};

// Equal texts have equal numbers.
class Numbers {
 public:
  uint32_t Of(std::string&& text) {
    return numbers_.try_emplace(std::move(text), static_cast<uint32_t>(numbers_.size()))
        .first->second;
  }

 private:
  std::unordered_map<std::string, uint32_t> numbers_;
};

Sketch SketchOf(const Side& side, std::string_view name, size_t index, Numbers& numbers) {
  const Entry& entry = side.entries[index];
  const NameParts parts = ParseEntryName(name);
  Sketch out;
  out.base = numbers.Of(fmt::format("{}\n{}", parts.base, static_cast<int>(parts.direction)));
  std::string token =
      fmt::format("{}\n{}", LastPart(parts.base), static_cast<int>(parts.direction));
  for (size_t i = entry.first; i < entry.first + entry.count; ++i) {
    const Leaf& leaf = side.leaves[i];
    if (!leaf.is_tensor) continue;
    token += '\n';
    token += static_cast<char>('0' + static_cast<int>(leaf.state));
    token += leaf.shape;
    if (out.norms.size() >= kMostValues) continue;
    double norm = 0;
    const bool known = ClassOf(leaf.norm, norm) == CellClass::kNumber;
    out.norms.push_back(known ? norm : std::nan(""));
  }
  out.token = numbers.Of(std::move(token));
  return out;
}

// 0: must not meet; 1: same operator and shapes; up to 5: recorded values agree as well.
double Likeness(const Sketch& t, const Sketch& g) {
  if (t.token != g.token) return 0;
  size_t known = 0, alike = 0;
  for (size_t i = 0; i < std::min(t.norms.size(), g.norms.size()); ++i) {
    if (std::isnan(t.norms[i]) || std::isnan(g.norms[i])) continue;
    ++known;
    alike += std::fabs(t.norms[i] - g.norms[i]) <= kAlike * std::fabs(g.norms[i]);
  }
  const double share = known == 0 ? 0 : static_cast<double>(alike) / static_cast<double>(known);
  if (t.base != g.base && share < 0.5) return 0;
  return 1 + 4 * share;
}

class Aligner {
 public:
  Aligner(const Side& target, const Side& golden, const AlignNames& names,
          const std::vector<uint32_t>& exact)
      : target_(target), golden_(golden), names_(names), partner_(exact) {}

  std::vector<uint32_t> Run() {
    Distrust();
    taken_.assign(golden_.entries.size(), false);
    for (const uint32_t g : partner_) {
      if (g != kNoEntry) taken_[g] = true;
    }
    Stretches(false);
    FollowForward();
    Stretches(true);
    return std::move(partner_);
  }

 private:
  static std::string BaseOf(std::string_view name) {
    const NameParts parts = ParseEntryName(name);
    return fmt::format("{}\n{}", parts.base, static_cast<int>(parts.direction));
  }

  // Calls of one operator pair by number only when both sides made as many.
  void Distrust() {
    std::unordered_map<std::string, int64_t> surplus;
    for (const std::string_view name : names_.target) ++surplus[BaseOf(name)];
    for (const std::string_view name : names_.golden) --surplus[BaseOf(name)];
    for (size_t t = 0; t < partner_.size(); ++t) {
      if (partner_[t] != kNoEntry && surplus[BaseOf(names_.target[t])] != 0) {
        partner_[t] = kNoEntry;
      }
    }
  }

  static bool IsBackward(const Entry& entry) {
    const Direction d = ParseEntryName(entry.name).direction;
    return d == Direction::kBackward || d == Direction::kGrad;
  }

  // Aligns what is left between pairs that both sides have in the same order.
  void Stretches(bool backward) {
    std::vector<uint32_t> t_open, g_open;
    size_t g_next = 0;
    const auto flush = [&](size_t g_end) {
      for (; g_next < g_end; ++g_next) {
        if (!taken_[g_next] && IsBackward(golden_.entries[g_next]) == backward) {
          g_open.push_back(static_cast<uint32_t>(g_next));
        }
      }
      if (!t_open.empty() && !g_open.empty()) AlignStretch(t_open, g_open);
      t_open.clear();
      g_open.clear();
    };
    for (size_t t = 0; t < partner_.size(); ++t) {
      if (IsBackward(target_.entries[t]) != backward) continue;
      if (partner_[t] == kNoEntry) {
        t_open.push_back(static_cast<uint32_t>(t));
      } else if (partner_[t] >= g_next) {
        flush(partner_[t]);
      }
    }
    flush(golden_.entries.size());
  }

  void AlignStretch(const std::vector<uint32_t>& t, const std::vector<uint32_t>& g) {
    std::vector<Sketch> ts, gs;
    for (const uint32_t i : t) ts.push_back(SketchOf(target_, names_.target[i], i, numbers_));
    for (const uint32_t i : g) gs.push_back(SketchOf(golden_, names_.golden[i], i, numbers_));
    constexpr size_t kLeastWidth = 16;
    const size_t width = std::min(g.size(), kMostCells / t.size());
    const size_t cells = t.size() * width;
    if (width >= std::min(kLeastWidth, g.size()) && cells_ + cells <= kMostCellsTogether) {
      cells_ += cells;
      Best(t, g, ts, gs, width);
    } else {
      Greedy(t, g, ts, gs);
    }
  }

  void Meet(uint32_t t, uint32_t g) {
    partner_[t] = g;
    taken_[g] = true;
  }

  // The order-keeping pairing with the largest sum of likeness (Needleman and Wunsch 1970, gaps
  // cost nothing). Long stretches are searched in a band of `width` golden entries around the
  // diagonal only.
  void Best(const std::vector<uint32_t>& t, const std::vector<uint32_t>& g,
            const std::vector<Sketch>& ts, const std::vector<Sketch>& gs, size_t width) {
    const size_t n = t.size(), m = g.size();
    enum Step : uint8_t { kSkipTarget, kSkipGolden, kMeet };
    const auto low = [&](size_t i) {
      const size_t middle = i * m / n, half = width / 2;
      return std::min(middle > half ? middle - half : 0, m - width);
    };
    std::vector<uint8_t> steps(n * width);
    std::vector<double> best(m + 1, 0);  // of the rests [i, n) and [j, m)
    for (size_t i = n; i-- > 0;) {
      const size_t lo = low(i);
      double after = best[lo + width];  // of the row below, at j + 1
      for (size_t j = lo + width; j-- > lo;) {
        const double like = Likeness(ts[i], gs[j]);
        const double below = best[j];
        Step step = kSkipTarget;
        if (best[j + 1] > best[j]) {
          best[j] = best[j + 1];
          step = kSkipGolden;
        }
        if (like > 0 && like + after > best[j]) {
          best[j] = like + after;
          step = kMeet;
        }
        after = below;
        steps[i * width + j - lo] = step;
      }
      // Left of the band golden entries are skipped.
      for (size_t j = i > 0 ? low(i - 1) : lo; j < lo; ++j) best[j] = best[lo];
    }
    for (size_t i = 0, j = 0; i < n && j < m;) {
      const size_t lo = low(i);
      uint8_t step = j < lo ? kSkipGolden : kSkipTarget;
      if (j >= lo && j < lo + width) step = steps[i * width + j - lo];
      if (step == kMeet) Meet(t[i], g[j]);
      i += step != kSkipGolden;
      j += step != kSkipTarget;
    }
  }

  // Each target entry takes the first golden entry behind the last pair that may meet it.
  void Greedy(const std::vector<uint32_t>& t, const std::vector<uint32_t>& g,
              const std::vector<Sketch>& ts, const std::vector<Sketch>& gs) {
    std::unordered_map<uint32_t, std::deque<size_t>> waiting;
    for (size_t j = 0; j < g.size(); ++j) waiting[gs[j].token].push_back(j);
    size_t from = 0;
    for (size_t i = 0; i < t.size(); ++i) {
      const auto it = waiting.find(ts[i].token);
      if (it == waiting.end()) continue;
      std::deque<size_t>& queue = it->second;
      while (!queue.empty() && queue.front() < from) queue.pop_front();
      if (queue.empty() || Likeness(ts[i], gs[queue.front()]) <= 0) continue;
      Meet(t[i], g[queue.front()]);
      from = queue.front() + 1;
    }
  }

  // Gradients of calls that were paired meet.
  void FollowForward() {
    std::unordered_map<std::string, uint32_t> golden_backward;
    for (size_t g = 0; g < golden_.entries.size(); ++g) {
      if (!taken_[g] && IsBackward(golden_.entries[g])) {
        golden_backward.emplace(golden_.entries[g].name, static_cast<uint32_t>(g));
      }
    }
    std::unordered_map<std::string, uint32_t> forward;  // base and call to the target entry
    for (size_t t = 0; t < partner_.size(); ++t) {
      const NameParts p = ParseEntryName(target_.entries[t].name);
      if (p.direction == Direction::kForward && partner_[t] != kNoEntry) {
        forward.emplace(fmt::format("{}\n{}", p.base, p.call), static_cast<uint32_t>(t));
      }
    }
    for (size_t t = 0; t < partner_.size(); ++t) {
      const NameParts p = ParseEntryName(target_.entries[t].name);
      if (p.direction != Direction::kBackward || partner_[t] != kNoEntry) continue;
      const auto f = forward.find(fmt::format("{}\n{}", p.base, p.call));
      if (f == forward.end()) continue;
      const NameParts g = ParseEntryName(golden_.entries[partner_[f->second]].name);
      const auto b =
          golden_backward.find(g.number_last ? fmt::format("{}.backward.{}", g.base, g.call)
                                             : fmt::format("{}.{}.backward", g.base, g.call));
      if (b != golden_backward.end() && !taken_[b->second]) {
        Meet(static_cast<uint32_t>(t), b->second);
      }
    }
  }

  const Side& target_;
  const Side& golden_;
  const AlignNames& names_;
  std::vector<uint32_t> partner_;
  std::vector<bool> taken_;
  Numbers numbers_;
  size_t cells_ = 0;  // of all tables so far
};

}  // namespace

std::vector<uint32_t> AlignEntries(const Side& target, const Side& golden, const AlignNames& names,
                                   const std::vector<uint32_t>& exact) {
  return Aligner(target, golden, names, exact).Run();
}

}  // namespace msprobe::compare
