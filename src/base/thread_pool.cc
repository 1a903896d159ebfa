#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <mutex>
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

bool CorePool::TryTake() {
  unsigned free = free_.load(std::memory_order_relaxed);
  while (free > 0) {
    if (free_.compare_exchange_weak(free, free - 1, std::memory_order_relaxed)) return true;
  }
  return false;
}

void CorePool::Give() { free_.fetch_add(1, std::memory_order_relaxed); }

void ParallelFor(size_t n, CorePool& pool, const std::function<void(size_t)>& fn,
                 const CancelToken* cancel) {
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::vector<std::thread> helpers;
  std::function<void()> work;
  const auto recruit = [&] {
    if (next.load(std::memory_order_relaxed) >= n || !pool.TryTake()) return;
    const std::lock_guard lock(mutex);
    helpers.emplace_back([&] {
      work();
      pool.Give();
    });
  };
  work = [&] {
    for (;;) {
      if (cancel != nullptr && cancel->cancelled()) return;
      const size_t i = next.fetch_add(1, std::memory_order_relaxed);
      if (i >= n) return;
      recruit();
      fn(i);
    }
  };
  work();
  // A helper recruits before it ends, so what it added is seen once it is joined.
  for (size_t k = 0;; ++k) {
    std::thread helper;
    {
      const std::lock_guard lock(mutex);
      if (k >= helpers.size()) return;
      helper = std::move(helpers[k]);
    }
    helper.join();
  }
}

}  // namespace msprobe
