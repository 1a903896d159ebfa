// Tensor files of one step: names, writing, and what happens when the disk is full.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
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

class TensorStore {
 public:
  explicit TensorStore(LogSink& log) : log_(log) {}

  // Starts anew in `dir`, which is made when the first file is.
  void Open(std::string dir);
  void Move(std::string dir);  // the folder was renamed
  // Writes {stem}.pt, complete or not at all; the value is its file name. A second save under the
  // same stem replaces the first. Once space has run out or the folder is gone, one error line is
  // logged and every further call fails at once. Thread-safe.
  Result<std::string> Save(std::string_view stem, const TensorView& view);
  uint64_t bytes() const;

 private:
  std::string UniqueName(std::string_view text);
  Status Write(const std::string& name, const TensorView& view);

  LogSink& log_;
  mutable std::mutex mutex_;
  std::string dir_;
  bool made_ = false, off_ = false;
  uint64_t bytes_ = 0;
  std::unordered_map<std::string, std::vector<std::string>>
      taken_;  // lower-case name -> names that differ by case
};

}  // namespace msprobe::collect
