// The rows of many ranks in the order of the ranks, whichever is done first.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "app/json_rows.h"
#include "base/result.h"

namespace msprobe::app {

// A rank whose turn it is writes into `rows`; the others into files of their own in `folder`, which
// are copied when their turn comes and are gone afterwards. Thread-safe.
class JsonTurns {
 public:
  JsonTurns(JsonRows& rows, std::string folder, size_t ranks)
      : rows_(rows), folder_(std::move(folder)), ended_(ranks, false) {}

  // At most once per rank, before it ended. Errors: those of `write` and of the file.
  Status Add(size_t rank, const std::function<Status(JsonRows&)>& write);
  // The rank adds nothing more, or nothing at all. Errors: those of copying what waited.
  Status Ended(size_t rank);
  // What waits for ranks that never ended, in order.
  Status Finish();

 private:
  JsonRows& rows_;
  const std::string folder_;
  std::mutex mutex_;
  std::vector<bool> ended_;
  size_t turn_ = 0;  // the first rank that has not ended
  std::map<size_t, std::unique_ptr<JsonRows>> waiting_;
};

}  // namespace msprobe::app
