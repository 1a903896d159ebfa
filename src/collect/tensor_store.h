// Tensor files of one step: names, writing, and what happens when the disk is full.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "tensor/view.h"

namespace msprobe::collect {

// A name that every file system takes (decisions.md 11): letters of any script, digits, '_', '.',
// '-' stay, other characters become %XX of their UTF-8 bytes; beyond 200 bytes the middle becomes
// ~{hash}~. Different texts give different names.
std::string FileStem(std::string_view text);

// A tensor's content at one moment, row-major.
struct TensorCopy {
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<std::byte> bytes;
};

// Files are written by one thread in the background, in the order in which they were queued, or by
// the caller itself. Thread-safe.
class TensorStore {
 public:
  // Numbers of queued files; they rise, 0 is none.
  using Ticket = uint64_t;
  struct Queued {
    std::string name;
    Ticket ticket = 0;
  };

  // The queue holds `limit` bytes (and one tensor at least), and callers wait for room. 0: with
  // `patient` a caller never waits for the disk, however much is queued; else kQueueBytes.
  TensorStore(bool patient, LogSink& log, size_t limit = 0)
      : limit_(limit > 0 ? limit : (patient ? SIZE_MAX : kQueueBytes)), log_(log) {}
  ~TensorStore();

  static constexpr size_t kQueueBytes = 128 << 20;

  // Starts anew in `dir`, which is made when the first file is. Nothing may be queued.
  void Open(std::string dir);
  void Move(std::string dir);  // the folder was renamed; nothing may be queued
  // Writes {stem}.pt, complete or not at all; the value is its file name. A second save under the
  // same stem replaces the first. Once space has run out or the folder is gone, one error line is
  // logged and every further call fails at once.
  Result<std::string> Save(std::string_view stem, const TensorView& view);

  // The same in the background: the content is that of now. An error means that nothing was queued.
  Result<Queued> Queue(std::string_view stem, const TensorView& view);
  // In two halves: the copy may yet be dropped.
  Result<std::string> Name(std::string_view stem);  // fails once writing has stopped
  TensorCopy Copy(const TensorView& view);
  Ticket QueueCopy(std::string name, TensorCopy copy);
  void Recycle(TensorCopy copy);  // its memory is used again

  Ticket finished() const;  // this one and all before it are on disk or have failed
  std::optional<Error> TakeFailure(Ticket ticket);  // of a finished one
  void Drain();                                     // waits until nothing is queued
  // Waits at most `seconds`; false when something is still queued.
  bool DrainFor(double seconds);
  void AfterForkInChild();  // the thread does not exist here
  uint64_t bytes() const;
  size_t queued_bytes() const;  // of copies that wait to be written, or are being written

 private:
  struct Job {
    std::string name;
    TensorCopy copy;
  };
  Status Ready();  // makes the folder; the mutex is held
  std::string UniqueName(std::string_view text);
  Status Write(const std::string& dir, const std::string& name, const TensorView& view);
  void Failed(const Error& error);
  void Run();

  const size_t limit_;
  LogSink& log_;
  mutable std::mutex mutex_;
  std::string dir_;
  bool made_ = false, off_ = false, said_ = false;
  uint64_t bytes_ = 0;
  std::unordered_map<std::string, std::vector<std::string>>
      taken_;  // lower-case name -> names that differ by case

  std::thread thread_;
  bool ending_ = false;
  std::condition_variable work_, progress_;
  std::deque<Job> queue_;  // the first one is being written
  size_t queued_bytes_ = 0;
  Ticket last_ = 0, finished_ = 0;
  std::unordered_map<Ticket, Error> failures_;
  std::vector<std::vector<std::byte>> spare_;
};

}  // namespace msprobe::collect
