#include "base/time.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <ctime>
#include <deque>
#include <mutex>

#include "base/file.h"

namespace msprobe {
namespace {

// Stamps that were given out and whose files are not there yet. Between processes the claim is the
// name of a socket in the kernel: it leaves no file and goes with its process, however that ends.
class Claims {
 public:
  // False when another thread or process has the second in this folder. A thread may claim again
  // what it has.
  bool Take(const std::string& dir, int64_t second) {
    struct stat folder;
    if (stat(dir.c_str(), &folder) != 0) return true;
    std::string name = fmt::format("msprobe stamp {} {} {}", folder.st_dev, folder.st_ino, second);
    static thread_local const char own = 0;
    const std::lock_guard lock(mutex_);
    const auto held = std::find_if(held_.begin(), held_.end(),
                                   [&](const Claim& claim) { return claim.name == name; });
    if (held != held_.end()) return held->thread == &own;
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && !Bind(fd, name)) {
      close(fd);
      return false;
    }
    held_.push_back({std::move(name), fd, &own});
    if (held_.size() > kKept) {  // its files have been there for long
      if (held_.front().fd >= 0) close(held_.front().fd);
      held_.pop_front();
    }
    return true;
  }

 private:
  static constexpr size_t kKept = 16;
  struct Claim {
    std::string name;
    int fd;
    const char* thread;
  };
  // Whatever else goes wrong, claims are a help only.
  static bool Bind(int fd, const std::string& name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::copy(name.begin(), name.end(), address.sun_path + 1);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return bind(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0 || errno != EADDRINUSE;
  }

  std::mutex mutex_;
  std::deque<Claim> held_;
};

}  // namespace

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
  static Claims claims;
  const auto is_free = [&](int64_t second) {
    const std::string stamp = LocalTimestamp(second);
    return std::none_of(patterns.begin(), patterns.end(), [&](std::string_view pattern) {
      std::string name(pattern);
      const size_t k = name.find("{ts}");
      if (k != std::string::npos) name.replace(k, 4, stamp);
      return PathExists(JoinPath(dir, name));
    });
  };
  // Looked at again once it is ours: whoever had it before may have left files.
  for (int64_t t = unix_seconds;; ++t) {
    if (is_free(t) && claims.Take(dir, t) && is_free(t)) return t;
  }
}

}  // namespace msprobe
