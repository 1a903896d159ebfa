// The progress of ranks that run side by side, as one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "base/log.h"

namespace msprobe::app {

class RankProgress {
 public:
  RankProgress(size_t ranks, ProgressSink& out);
  ~RankProgress();
  // What rank `index` reports to.
  ProgressSink& Of(size_t index);
  // Rank `index` is done, however it ended.
  void Done(size_t index);

 private:
  class Sink;
  struct Part {
    uint64_t done = 0, total = 0;
    bool begun = false, ended = false;
  };
  void Set(size_t index, std::string_view stage, uint64_t done, uint64_t total);
  void Report(std::string_view stage);

  ProgressSink& out_;
  std::mutex mutex_;
  std::vector<Part> parts_;
  std::vector<std::unique_ptr<Sink>> sinks_;
  uint64_t done_ = 0, total_ = 0;  // over the ranks that have begun
  size_t begun_ = 0, ended_ = 0;
};

}  // namespace msprobe::app
