// Where pieces of work run when not in this process: other processes, other hosts. An item is plain
// bytes, and so is what it gives; whoever runs items knows nothing of comparison.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/result.h"

namespace msprobe::app {

// One piece. Its payload and the command that made it are all that a worker needs: the same bytes
// give the same bytes, on any host that sees the same files, however often it is run.
struct WorkItem {
  std::string payload;
  // Earlier items whose whole results it is given. They are not delivered.
  std::vector<size_t> inputs;
};

// Takes results, one item after the other in the order of the items, from one thread. A result
// comes in pieces so that none is ever whole in memory. Errors end the run.
class ItemSink {
 public:
  virtual ~ItemSink() = default;
  virtual Status Chunk(size_t item, std::string_view bytes) = 0;
  virtual Status Done(size_t item) = 0;
  // It was given up: `reason` says what became of its worker. What came of it before is void.
  virtual Status Failed(size_t item, const std::string& reason) = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;
  // Items that nobody has as input are delivered. Errors: those of `sink`; kCancelled; kUnsupported
  // and kNotFound when there is nowhere to run.
  virtual Status Run(std::span<const WorkItem> items, ItemSink& sink,
                     const CancelToken* cancel) = 0;
  // Places to run items at, >= 1; how finely work is cut.
  virtual Result<unsigned> Slots() = 0;
};

// Runs items without inputs whose results are small, and keeps these: one for each payload, in
// their order; an error, kInternal, where an item was given up.
Result<std::vector<Result<std::string>>> RunSmall(Engine& engine,
                                                  std::span<const std::string> payloads,
                                                  const CancelToken* cancel);

// What a worker has beside the item. `inputs`: empty texts stand for items that failed.
struct ItemContext {
  std::span<const std::string> inputs;
  std::string scratch;  // a folder of its own
  std::function<Status(std::string_view bytes)> emit;
};

// The pieces that results travel in.
inline constexpr size_t kChunkBytes = 4 << 20;

}  // namespace msprobe::app
