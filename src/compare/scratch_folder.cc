#include "compare/scratch_folder.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>

#include "base/file.h"

namespace msprobe::compare {

ScratchFolder::~ScratchFolder() {
  for (const std::string& file : files_) unlink(file.c_str());
  if (!path_.empty()) rmdir(path_.c_str());
}

Result<std::string> ScratchFolder::NewFile() {
  if (path_.empty()) {
    MSPROBE_TRY(CreateDirectories(parent_));
    std::string pattern = JoinPath(parent_, ".msprobe_products_XXXXXX");
    if (mkdtemp(pattern.data()) == nullptr) return ErrnoError(errno, "create", pattern);
    path_ = std::move(pattern);
  }
  files_.push_back(JoinPath(path_, fmt::format("{}.pt", files_.size())));
  return files_.back();
}

}  // namespace msprobe::compare
