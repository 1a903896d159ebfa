#include "base/time.h"

#include <fmt/format.h>

#include <chrono>
#include <ctime>

#include "base/file.h"

namespace msprobe {

std::string LocalTimestamp(int64_t unix_seconds) {
  const std::time_t t = static_cast<std::time_t>(unix_seconds);
  std::tm tm{};
  localtime_r(&t, &tm);
  return fmt::format("{:04}{:02}{:02}{:02}{:02}{:02}", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday,
                     tm.tm_hour, tm.tm_min, tm.tm_sec);
}

int64_t UnixSeconds() { return UnixNanoseconds() / 1'000'000'000; }

int64_t UnixNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

double MonotonicSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string IsoUtc(int64_t unix_seconds) {
  const std::time_t t = static_cast<std::time_t>(unix_seconds);
  std::tm tm{};
  gmtime_r(&t, &tm);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", tm.tm_year + 1900, tm.tm_mon + 1,
                     tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
}

int64_t FreeTimestamp(const std::string& dir, std::initializer_list<std::string_view> patterns,
                      int64_t unix_seconds) {
  for (int64_t t = unix_seconds;; ++t) {
    const std::string stamp = LocalTimestamp(t);
    bool taken = false;
    for (const std::string_view pattern : patterns) {
      std::string name(pattern);
      const size_t k = name.find("{ts}");
      if (k != std::string::npos) name.replace(k, 4, stamp);
      taken = taken || PathExists(JoinPath(dir, name));
    }
    if (!taken) return t;
  }
}

}  // namespace msprobe
