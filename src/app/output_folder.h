// The folder that reports go to: made before the work begins, gone again when nothing was written.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace msprobe::app {

class OutputFolder {
 public:
  // Makes `dir` and its parents (`mode`, less the umask, for those it makes) and tries whether a
  // file can be made inside. Errors name the output folder and come before any work:
  // kInvalidArgument for an empty or too long name, kNotRegularFile, kPermission, kNotFound where
  // the file system has no folders of the user's, kNoSpace.
  static Result<OutputFolder> Make(const std::string& dir, unsigned mode = 0777);
  OutputFolder(OutputFolder&& other) noexcept : made_(std::move(other.made_)) {
    other.made_.clear();
  }
  OutputFolder& operator=(OutputFolder&&) = delete;
  // Removes the folders that Make() made and that are empty.
  ~OutputFolder();

 private:
  OutputFolder() = default;
  std::vector<std::string> made_;  // outermost first
};

}  // namespace msprobe::app
