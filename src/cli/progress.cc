#include "cli/progress.h"

#include <fmt/format.h>

#include <cmath>

namespace msprobe::cli {
namespace {

constexpr double kTerminalSeconds = 0.1, kPlainSeconds = 10;
constexpr double kFirstRate = 0.5;  // seconds before a rate says something

}  // namespace

std::string Duration(double seconds) {
  constexpr int64_t kMinute = 60, kHour = 3600;
  const auto s = static_cast<int64_t>(std::ceil(seconds));
  if (s < kMinute) return fmt::format("{} s", s);
  if (s < kHour) return fmt::format("{} min {} s", s / kMinute, s % kMinute);
  return fmt::format("{} h {} min", s / kHour, s % kHour / kMinute);
}

std::optional<std::string> Progress::Line(std::string_view stage, uint64_t done, uint64_t total,
                                          double now) {
  if (!begun_ || done < last_) {
    begun_ = true;
    start_ = now;
    shown_ = terminal_ ? now - 2 * kTerminalSeconds : now;
    at_start_ = done;
  }
  last_ = done;
  if (now - shown_ < (terminal_ ? kTerminalSeconds : kPlainSeconds)) return std::nullopt;
  shown_ = now;
  const double share =
      total == 0 ? 100.0 : 100.0 * static_cast<double>(done) / static_cast<double>(total);
  std::string out = fmt::format("{}: {} of {} ({:.0f}%)", stage, done, total, std::floor(share));
  const double passed = now - start_;
  if (passed < kFirstRate || done <= at_start_ || done >= total) return out;
  const double rate = static_cast<double>(done - at_start_) / passed;
  const double left = static_cast<double>(total - done) / rate;
  return out + fmt::format(", {}/s, {} left",
                           rate >= 10 ? fmt::format("{:.0f}", rate) : fmt::format("{:.1f}", rate),
                           Duration(left));
}

}  // namespace msprobe::cli
