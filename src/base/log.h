// Where messages and progress go. The library never prints; callers pass sinks in.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

namespace msprobe {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };

// Thread-safe implementations only. Text is already made visible (text.h) by the sink, not by the
// caller.
class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual void Log(LogLevel level, std::string_view message) = 0;

  void Debug(std::string_view m) { Log(LogLevel::kDebug, m); }
  void Info(std::string_view m) { Log(LogLevel::kInfo, m); }
  void Warning(std::string_view m) { Log(LogLevel::kWarning, m); }
  void Error(std::string_view m) { Log(LogLevel::kError, m); }
};

LogSink& NullLog();  // drops everything

class ProgressSink {
 public:
  virtual ~ProgressSink() = default;
  // `done` of `total` units of `stage`; from any thread.
  virtual void Update(std::string_view stage, uint64_t done, uint64_t total) = 0;
};

ProgressSink& NullProgress();

// Set from a signal handler or another thread; long loops ask it between items.
class CancelToken {
 public:
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> cancelled_{false};
};

}  // namespace msprobe
