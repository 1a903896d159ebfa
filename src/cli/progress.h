// Words about work under way, and when to say them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace msprobe::cli {

// One piece of work, from its first report on. On a terminal a line that is written over, ten times
// a second at most; elsewhere plain lines, one every ten seconds, so that short work says nothing.
class Progress {
 public:
  explicit Progress(bool terminal) : terminal_(terminal) {}
  // The line to show now, if any: "tensors: 120 of 600 (20%), 35/s, 14 s left". `now` in seconds,
  // from any beginning. Work begins anew when `done` falls.
  std::optional<std::string> Line(std::string_view stage, uint64_t done, uint64_t total,
                                  double now);

 private:
  bool terminal_;
  bool begun_ = false;
  double start_ = 0, shown_ = 0;
  uint64_t at_start_ = 0, last_ = 0;
};

// "3 s", "12 min 5 s", "2 h 3 min".
std::string Duration(double seconds);

}  // namespace msprobe::cli
