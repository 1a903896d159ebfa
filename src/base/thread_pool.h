// Work on independent items over the cores of this machine.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>

#include "base/log.h"

namespace msprobe {

// std::thread::hardware_concurrency(), at least 1, limited by the affinity mask.
unsigned AvailableCores();

// Calls fn(i) for every i in [0, n) on up to `workers` threads (0 = AvailableCores()), in the order
// of i: put the largest items first. Returns when all are done; after Cancel() no new item is
// begun. fn must not throw.
void ParallelFor(size_t n, unsigned workers, const std::function<void(size_t)>& fn,
                 const CancelToken* cancel = nullptr);

// A number of threads that several ParallelFor share: when one of them ends, those that are left
// take its threads at their next item.
class CorePool {
 public:
  explicit CorePool(unsigned threads) : free_(threads) {}
  bool TryTake();
  void Give();

 private:
  std::atomic<unsigned> free_;
};

// As above, on the calling thread and as many others as `pool` has to spare, now or later.
void ParallelFor(size_t n, CorePool& pool, const std::function<void(size_t)>& fn,
                 const CancelToken* cancel = nullptr);

}  // namespace msprobe
