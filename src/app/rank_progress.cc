#include "app/rank_progress.h"

#include <fmt/format.h>

#include <algorithm>

namespace msprobe::app {

class RankProgress::Sink final : public ProgressSink {
 public:
  Sink(RankProgress& all, size_t index) : all_(all), index_(index) {}
  void Update(std::string_view stage, uint64_t done, uint64_t total) override {
    all_.Set(index_, stage, done, total);
  }

 private:
  RankProgress& all_;
  size_t index_;
};

RankProgress::RankProgress(size_t ranks, ProgressSink& out) : out_(out), parts_(ranks) {
  for (size_t i = 0; i < ranks; ++i) sinks_.push_back(std::make_unique<Sink>(*this, i));
}

RankProgress::~RankProgress() = default;

ProgressSink& RankProgress::Of(size_t index) { return *sinks_[index]; }

void RankProgress::Set(size_t index, std::string_view stage, uint64_t done, uint64_t total) {
  const std::lock_guard lock(mutex_);
  Part& part = parts_[index];
  begun_ += !part.begun;
  part.begun = true;
  // Threads report out of order: what is done does not fall.
  done = std::max(done, part.done);
  done_ += done - part.done;
  total_ = total_ - part.total + total;
  part.done = done;
  part.total = total;
  Report(stage);
}

void RankProgress::Done(size_t index) {
  const std::lock_guard lock(mutex_);
  Part& part = parts_[index];
  if (part.ended) return;
  part.ended = true;
  ++ended_;
  if (parts_.size() == 1) return;
  begun_ += !part.begun;
  if (!part.begun) part.total = 0;
  part.begun = true;
  done_ += part.total - part.done;
  part.done = part.total;
  Report("compare");
}

// Ranks that have not begun are taken to be like those that have.
void RankProgress::Report(std::string_view stage) {
  if (parts_.size() == 1) return out_.Update(stage, done_, total_);
  if (total_ == 0) return out_.Update("ranks", ended_, parts_.size());
  out_.Update(fmt::format("{}, {} of {} ranks done", stage, ended_, parts_.size()), done_,
              total_ / begun_ * parts_.size());
}

}  // namespace msprobe::app
