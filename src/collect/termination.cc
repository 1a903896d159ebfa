#include "collect/termination.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

namespace msprobe::collect {
namespace {

constexpr int kSecondsToFlush = 10;

std::atomic<int> write_end{-1};
std::atomic<pid_t> owner{0};
std::mutex flush_mutex;

// Never freed: the thread outlives static objects.
std::map<const void*, std::function<void()>>& Flushes() {
  static auto* flushes = new std::map<const void*, std::function<void()>>;
  return *flushes;
}

void DieOf(int signal) {
  std::signal(signal, SIG_DFL);
  kill(getpid(), signal);
}

// Only calls that are allowed in a signal handler.
void OnSignal(int signal) {
  const int saved = errno;
  const char byte = 1;
  if (getpid() != owner.load() || write(write_end.load(), &byte, 1) != 1) DieOf(signal);
  errno = saved;
}

void WaitAndFlush(int read_end) {
  char byte = 0;
  while (read(read_end, &byte, 1) < 0 && errno == EINTR) {
  }
  // Whatever happens to the flush, the process ends.
  std::thread([] {
    const timespec wait{kSecondsToFlush, 0};
    nanosleep(&wait, nullptr);
    DieOf(SIGTERM);
  }).detach();
  {
    const std::lock_guard lock(flush_mutex);
    for (const auto& [key, flush] : Flushes()) flush();
  }
  DieOf(SIGTERM);
}

bool StartThread() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  write_end = ends[1];
  owner = getpid();
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals belong to the program's own threads
  std::thread(WaitAndFlush, ends[0]).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return true;
}

}  // namespace

void FlushAtTermination(const void* key, std::function<void()> flush) {
  const std::lock_guard lock(flush_mutex);
  if (!flush) return Flushes().erase(key), void();
  const bool inherited = owner.load() != getpid();
  if (inherited) Flushes().clear();  // of the process that this one was forked from
  Flushes()[key] = std::move(flush);
  struct sigaction now{};
  if (sigaction(SIGTERM, nullptr, &now) != 0 || (now.sa_flags & SA_SIGINFO) != 0 ||
      (now.sa_handler != SIG_DFL && now.sa_handler != OnSignal))
    return;
  if (inherited && !StartThread()) return;
  struct sigaction ours{};
  ours.sa_handler = OnSignal;
  ours.sa_flags = SA_RESTART;
  sigemptyset(&ours.sa_mask);
  sigaction(SIGTERM, &ours, nullptr);
}

void ForgetTerminationInChild() {
  struct sigaction now{};
  if (sigaction(SIGTERM, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 &&
      now.sa_handler == OnSignal)
    std::signal(SIGTERM, SIG_DFL);
}

}  // namespace msprobe::collect
