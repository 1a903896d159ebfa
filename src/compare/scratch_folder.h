// Files that stand in for recorded tensors while a comparison runs.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace msprobe::compare {

// A private folder below `parent`, made with its first file and gone with this object.
class ScratchFolder {
 public:
  explicit ScratchFolder(std::string parent) : parent_(std::move(parent)) {}
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder();
  // The path of a new file, not made yet. Errors: those of making the folder.
  Result<std::string> NewFile();

 private:
  std::string parent_, path_;
  std::vector<std::string> files_;
};

}  // namespace msprobe::compare
