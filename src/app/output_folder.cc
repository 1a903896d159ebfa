#include "app/output_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/file.h"

namespace msprobe::app {
namespace {

constexpr const char* kHint = "give another folder with -o";

Error Refused(const Error& cause, const std::string& dir) {
  return Error(cause.code, "the output folder cannot be used: " + cause.message)
      .At(dir)
      .Hint(kHint);
}

Error OfErrno(int err, const std::string& dir) {
  if (err == ENAMETOOLONG) {
    return Error(ErrorCode::kInvalidArgument, "the name of the output folder is too long")
        .At(dir.size() > 100 ? dir.substr(0, 100) + "…" : dir)
        .Hint("at most 255 bytes between slashes and 4095 in all");
  }
  if (err == ENOTDIR || err == EEXIST) {
    return Error(ErrorCode::kNotRegularFile, "is a file where the output folder belongs")
        .At(dir)
        .Hint(kHint);
  }
  if (err == EACCES || err == EPERM || err == EROFS) {
    return Error(ErrorCode::kPermission,
                 fmt::format("the output folder cannot be written: {}", std::strerror(err)))
        .At(dir)
        .Hint(kHint);
  }
  return Refused(ErrnoError(err, "create", dir), dir);
}

}  // namespace

Result<OutputFolder> OutputFolder::Make(const std::string& dir, unsigned mode) {
  if (dir.empty()) {
    return Error(ErrorCode::kInvalidArgument, "the output path is empty").Hint(kHint);
  }
  OutputFolder out;
  for (size_t k = 1; k <= dir.size(); ++k) {
    if (k < dir.size() && dir[k] != '/') continue;
    const std::string part = dir.substr(0, k);
    if (IsDirectory(part)) continue;
    if (mkdir(part.c_str(), mode & 0775) == 0) {
      out.made_.push_back(part);
      continue;
    }
    const int err = errno;
    if (err != EEXIST || !IsDirectory(part)) return OfErrno(err, part);
  }
  // What access() says of a folder does not hold for root and for odd file systems.
  const Result<AtomicFile> probe = AtomicFile::Create(JoinPath(dir, "msprobe_probe"));
  if (!probe.ok()) return Refused(probe.error(), dir);
  return out;
}

OutputFolder::~OutputFolder() {
  for (auto it = made_.rbegin(); it != made_.rend(); ++it) {
    if (rmdir(it->c_str()) != 0) return;
  }
}

}  // namespace msprobe::app
