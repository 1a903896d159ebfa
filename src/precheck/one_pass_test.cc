// All figures of a pair come from one pass over it: pages of both arrays are locked again behind
// the reader, and whoever comes back to one is counted.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "precheck/metrics.h"

namespace msprobe::precheck {
namespace {

constexpr size_t kPages = 64;
constexpr size_t kOpen = 6;  // of one array: what a block spans, and what was read before it

// An array of doubles whose pages are opened by the first read and locked `kOpen` reads later.
class WatchedArray {
 public:
  WatchedArray() : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    void* memory =
        mmap(nullptr, kPages * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    data_ = static_cast<double*>(memory);
    count_ = kPages * page_ / sizeof(double);
    shape_ = {static_cast<int64_t>(count_)};
  }
  ~WatchedArray() { munmap(data_, kPages * page_); }
  WatchedArray(const WatchedArray&) = delete;
  WatchedArray& operator=(const WatchedArray&) = delete;

  double* data() { return data_; }
  size_t count() const { return count_; }
  TensorView view() const {
    return {reinterpret_cast<const std::byte*>(data_), DType::kF64, shape_, {}};
  }
  void Lock() {
    reads_.fill(0);
    mprotect(data_, kPages * page_, PROT_NONE);
  }
  void Unlock() { mprotect(data_, kPages * page_, PROT_READ | PROT_WRITE); }
  int most_reads() const { return *std::max_element(reads_.begin(), reads_.end()); }
  int fewest_reads() const { return *std::min_element(reads_.begin(), reads_.end()); }

  // In the signal handler: only system calls and plain stores.
  bool Fault(const void* at) {
    const auto offset =
        static_cast<size_t>(static_cast<const char*>(at) - reinterpret_cast<const char*>(data_));
    if (at < static_cast<const void*>(data_) || offset >= kPages * page_) return false;
    const size_t page = offset / page_;
    ++reads_[page];
    if (open_count_ >= kOpen) Protect(open_[open_count_ % kOpen], PROT_NONE);
    open_[open_count_++ % kOpen] = page;
    Protect(page, PROT_READ);
    return true;
  }

 private:
  void Protect(size_t page, int how) {
    mprotect(reinterpret_cast<char*>(data_) + page * page_, page_, how);
  }

  size_t page_ = 0, count_ = 0, open_count_ = 0;
  double* data_ = nullptr;
  std::array<int64_t, 1> shape_ = {};
  std::array<size_t, kOpen> open_ = {};
  std::array<int, kPages> reads_ = {};
};

std::array<WatchedArray*, 2> watched;

void OnFault(int, siginfo_t* info, void*) {
  for (WatchedArray* array : watched) {
    if (array->Fault(info->si_addr)) return;
  }
  signal(SIGSEGV, SIG_DFL);  // not ours: it comes again and ends the process
}

class OnePass : public testing::Test {
 protected:
  OnePass() {
    watched = {&bench_, &device_};
    for (size_t i = 0; i < bench_.count(); ++i) {
      bench_.data()[i] = std::sin(static_cast<double>(i));
      device_.data()[i] = bench_.data()[i] * (i % 3 == 0 ? 1.001 : 1);
    }
    struct sigaction action = {};
    action.sa_sigaction = OnFault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &before_);
    bench_.Lock();
    device_.Lock();
  }
  ~OnePass() override {
    bench_.Unlock();
    device_.Unlock();
    sigaction(SIGSEGV, &before_, nullptr);
  }

  WatchedArray bench_, device_;
  struct sigaction before_ = {};
};

TEST_F(OnePass, AllFiguresOfAPairReadItOnce) {
  const Figures f = FiguresOf(bench_.view(), device_.view());
  EXPECT_EQ(f.count, bench_.count());
  EXPECT_GT(f.unequal, 0u);
  for (const WatchedArray* array : {&bench_, &device_}) {
    EXPECT_EQ(array->most_reads(), 1);
    EXPECT_EQ(array->fewest_reads(), 1);
  }
}

// The watch sees a second pass.
TEST_F(OnePass, ASecondPassIsCounted) {
  FiguresOf(bench_.view(), device_.view());
  FiguresOf(bench_.view(), device_.view());
  EXPECT_EQ(bench_.most_reads(), 2);
  EXPECT_EQ(device_.most_reads(), 2);
}

}  // namespace
}  // namespace msprobe::precheck
