// The diff behind the alignment.
#include <algorithm>
#include <unordered_map>

#include "culprit/align.h"

namespace msprobe::culprit {
namespace {

using Pair = std::pair<uint32_t, uint32_t>;

struct Span {
  uint32_t a, a_end, b, b_end;  // [a, a_end) of one sequence, [b, b_end) of the other
};

class Differ {
 public:
  Differ(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b) : a_(a), b_(b) {}

  std::vector<Pair> Run() {
    Solve({0, static_cast<uint32_t>(a_.size()), 0, static_cast<uint32_t>(b_.size())}, 0);
    std::sort(out_.begin(), out_.end());
    return std::move(out_);
  }

 private:
  void Solve(Span s, int depth) {
    while (s.a < s.a_end && s.b < s.b_end && a_[s.a] == b_[s.b]) out_.emplace_back(s.a++, s.b++);
    while (s.a < s.a_end && s.b < s.b_end && a_[s.a_end - 1] == b_[s.b_end - 1]) {
      out_.emplace_back(--s.a_end, --s.b_end);
    }
    if (s.a == s.a_end || s.b == s.b_end) return;
    if (Myers(s)) return;
    constexpr int kDeepest = 40;
    const std::vector<Pair> anchors = depth < kDeepest ? Anchors(s) : std::vector<Pair>();
    if (anchors.empty()) return ByOccurrence(s);
    Span part = s;
    for (const Pair& p : anchors) {
      out_.push_back(p);
      Solve({part.a, p.first, part.b, p.second}, depth + 1);
      part.a = p.first + 1;
      part.b = p.second + 1;
    }
    Solve(part, depth + 1);
  }

  // False when there are more than kMostEdits edits. Memory: kMostEdits^2 ints.
  bool Myers(const Span& s) {
    const int n = static_cast<int>(s.a_end - s.a);
    const int m = static_cast<int>(s.b_end - s.b);
    if (std::abs(n - m) > kMostEdits) return false;
    const int most = std::min(kMostEdits, n + m);
    const int middle = most + 1;
    std::vector<int> v(static_cast<size_t>(2 * middle + 1), 0);
    std::vector<std::vector<int>> trace;
    for (int d = 0; d <= most; ++d) {
      trace.emplace_back(v.begin() + (middle - d), v.begin() + (middle + d + 1));
      for (int k = -d; k <= d; k += 2) {
        const auto at = static_cast<size_t>(middle + k);
        int x = k == -d || (k != d && v[at - 1] < v[at + 1]) ? v[at + 1] : v[at - 1] + 1;
        while (x < n && x - k < m &&
               a_[s.a + static_cast<uint32_t>(x)] == b_[s.b + static_cast<uint32_t>(x - k)]) {
          ++x;
        }
        v[at] = x;
        if (x >= n && x - k >= m) {
          Trace(s, trace, d, n, m);
          return true;
        }
      }
    }
    return false;
  }

  void Trace(const Span& s, const std::vector<std::vector<int>>& trace, int d, int x, int y) {
    for (; d >= 0 && (x > 0 || y > 0); --d) {
      const std::vector<int>& v = trace[static_cast<size_t>(d)];  // diagonals -d … d before step d
      const auto value = [&](int k) { return v[static_cast<size_t>(k + d)]; };
      const int k = x - y;
      int before = 0;
      if (d > 0) before = k == -d || (k != d && value(k - 1) < value(k + 1)) ? k + 1 : k - 1;
      const int px = d > 0 ? value(before) : 0;
      const int py = d > 0 ? px - before : 0;
      while (x > px && y > py) {
        --x;
        --y;
        out_.emplace_back(s.a + static_cast<uint32_t>(x), s.b + static_cast<uint32_t>(y));
      }
      x = px;
      y = py;
    }
  }

  // Tokens that occur once on both sides, in an order that both have (longest increasing
  // subsequence).
  std::vector<Pair> Anchors(const Span& s) const {
    struct Seen {
      uint32_t in_a = 0, in_b = 0, at_a = 0, at_b = 0;
    };
    std::unordered_map<uint64_t, Seen> seen;
    for (uint32_t i = s.a; i < s.a_end; ++i) {
      Seen& e = seen[a_[i]];
      ++e.in_a;
      e.at_a = i;
    }
    for (uint32_t i = s.b; i < s.b_end; ++i) {
      Seen& e = seen[b_[i]];
      ++e.in_b;
      e.at_b = i;
    }
    std::vector<Pair> once;
    for (uint32_t i = s.a; i < s.a_end; ++i) {
      const Seen& e = seen[a_[i]];
      if (e.in_a == 1 && e.in_b == 1) once.emplace_back(i, e.at_b);
    }
    return Increasing(once);
  }

  // Of pairs ascending in the first index, the longest part that ascends in the second as well.
  static std::vector<Pair> Increasing(const std::vector<Pair>& pairs) {
    std::vector<uint32_t> tails;  // index of the pair that ends the best chain of each length
    std::vector<uint32_t> before(pairs.size(), kNowhere);
    for (uint32_t i = 0; i < pairs.size(); ++i) {
      const auto it =
          std::lower_bound(tails.begin(), tails.end(), pairs[i].second,
                           [&](uint32_t t, uint32_t value) { return pairs[t].second < value; });
      if (it != tails.begin()) before[i] = *(it - 1);
      if (it == tails.end()) {
        tails.push_back(i);
      } else {
        *it = i;
      }
    }
    std::vector<Pair> out;
    for (uint32_t i = tails.empty() ? kNowhere : tails.back(); i != kNowhere; i = before[i])
      out.push_back(pairs[i]);
    std::reverse(out.begin(), out.end());
    return out;
  }

  void ByOccurrence(const Span& s) {
    std::unordered_map<uint64_t, std::vector<uint32_t>> places;
    for (uint32_t i = s.b; i < s.b_end; ++i) places[b_[i]].push_back(i);
    std::unordered_map<uint64_t, size_t> used;
    std::vector<Pair> pairs;
    for (uint32_t i = s.a; i < s.a_end; ++i) {
      const auto it = places.find(a_[i]);
      if (it == places.end()) continue;
      size_t& next = used[a_[i]];
      if (next < it->second.size()) pairs.emplace_back(i, it->second[next++]);
    }
    for (const Pair& p : Increasing(pairs)) out_.push_back(p);
  }

  const std::vector<uint64_t>& a_;
  const std::vector<uint64_t>& b_;
  std::vector<Pair> out_;
};

}  // namespace

std::vector<Pair> Pairs(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b) {
  return Differ(a, b).Run();
}

}  // namespace msprobe::culprit
