#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace msprobe {

unsigned AvailableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    const int n = CPU_COUNT(&set);
    if (n > 0) return static_cast<unsigned>(n);
  }
  return std::max(1u, std::thread::hardware_concurrency());
}

void ParallelFor(size_t n, unsigned workers, const std::function<void(size_t)>& fn,
                 const CancelToken* cancel) {
  if (workers == 0) workers = AvailableCores();
  workers = static_cast<unsigned>(std::min<size_t>(workers, n));
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (;;) {
      if (cancel != nullptr && cancel->cancelled()) return;
      const size_t i = next.fetch_add(1, std::memory_order_relaxed);
      if (i >= n) return;
      fn(i);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned k = 1; k < workers; ++k) threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();
}

}  // namespace msprobe
