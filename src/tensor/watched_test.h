// For tests: memory that counts how often each of its pages is fetched. A page is opened by the
// first read and locked again when `open` others were opened after it, as a cache would forget it;
// whoever comes back later is counted again.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <utility>
#include <vector>

namespace msprobe {

class WatchedMemory {
 public:
  WatchedMemory(size_t pages, size_t open)
      : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))), reads_(pages), open_(open) {
    void* memory =
        mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    data_ = static_cast<std::byte*>(memory);
  }
  ~WatchedMemory() { munmap(data_, bytes()); }
  WatchedMemory(const WatchedMemory&) = delete;
  WatchedMemory& operator=(const WatchedMemory&) = delete;

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t bytes() const { return reads_.size() * page_; }
  void Lock() {
    std::fill(reads_.begin(), reads_.end(), 0);
    mprotect(data_, bytes(), PROT_NONE);
  }
  void Unlock() { mprotect(data_, bytes(), PROT_READ | PROT_WRITE); }
  int most_reads() const { return *std::max_element(reads_.begin(), reads_.end()); }
  int fewest_reads() const { return *std::min_element(reads_.begin(), reads_.end()); }

  // In the signal handler: only system calls and plain stores.
  bool Fault(const void* at) {
    const auto offset = static_cast<size_t>(static_cast<const std::byte*>(at) - data_);
    if (at < static_cast<const void*>(data_) || offset >= bytes()) return false;
    const size_t page = offset / page_;
    ++reads_[page];
    if (opened_ >= open_.size()) Protect(open_[opened_ % open_.size()], PROT_NONE);
    open_[opened_++ % open_.size()] = page;
    Protect(page, PROT_READ);
    return true;
  }

 private:
  void Protect(size_t page, int how) { mprotect(data_ + page * page_, page_, how); }

  size_t page_ = 0, opened_ = 0;
  std::byte* data_ = nullptr;
  std::vector<int> reads_;
  std::vector<size_t> open_;  // the pages that are open, round and round
};

// While it lives, reads of locked pages are counted. One at a time.
class Watch {
 public:
  explicit Watch(std::vector<WatchedMemory*> memories) {
    watched() = std::move(memories);
    struct sigaction action = {};
    action.sa_sigaction = OnFault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &before_);
    for (WatchedMemory* memory : watched()) memory->Lock();
  }
  ~Watch() {
    for (WatchedMemory* memory : watched()) memory->Unlock();
    sigaction(SIGSEGV, &before_, nullptr);
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  static std::vector<WatchedMemory*>& watched() {
    static std::vector<WatchedMemory*> memories;
    return memories;
  }
  static void OnFault(int, siginfo_t* info, void*) {
    for (WatchedMemory* memory : watched()) {
      if (memory->Fault(info->si_addr)) return;
    }
    signal(SIGSEGV, SIG_DFL);  // not ours: it comes again and ends the process
  }

  struct sigaction before_ = {};
};

}  // namespace msprobe
