#include "app/engine.h"

namespace msprobe::app {
namespace {

class Keeper final : public ItemSink {
 public:
  explicit Keeper(size_t items) : results_(items, Result<std::string>(std::string())) {}
  Status Chunk(size_t item, std::string_view bytes) override {
    *results_[item] += bytes;
    return {};
  }
  Status Done(size_t) override { return {}; }
  Status Failed(size_t item, const std::string& reason) override {
    results_[item] = Error(ErrorCode::kInternal, reason);
    return {};
  }
  std::vector<Result<std::string>> Take() { return std::move(results_); }

 private:
  std::vector<Result<std::string>> results_;
};

}  // namespace

Result<std::vector<Result<std::string>>> RunSmall(Engine& engine,
                                                  std::span<const std::string> payloads,
                                                  const CancelToken* cancel) {
  std::vector<WorkItem> items;
  for (const std::string& payload : payloads) items.push_back({payload, {}});
  Keeper keeper(items.size());
  MSPROBE_TRY(engine.Run(items, keeper, cancel));
  return keeper.Take();
}

}  // namespace msprobe::app
