#include "base/log.h"

namespace msprobe {
namespace {

class DroppingLog final : public LogSink {
 public:
  void Log(LogLevel, std::string_view) override {}
};

class DroppingProgress final : public ProgressSink {
 public:
  void Update(std::string_view, uint64_t, uint64_t) override {}
};

}  // namespace

LogSink& NullLog() {
  static DroppingLog sink;
  return sink;
}

ProgressSink& NullProgress() {
  static DroppingProgress sink;
  return sink;
}

}  // namespace msprobe
