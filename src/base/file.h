// Reading files that may be hostile and writing files that are complete or absent.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

namespace msprobe {

// A regular file opened for positioned reads. Never a FIFO, device, socket or directory
// (kNotRegularFile), and never mapped, so a file that shrinks while it is read is an error
// (kTruncated), not a signal. Safe to share among threads.
class InputFile {
 public:
  // Follows links: a path the user typed may be one. Errors: kNotFound, kPermission,
  // kNotRegularFile, kIo.
  static Result<InputFile> Open(const std::string& path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }  // at the time of opening

  // Fills `out` from byte `offset` on. kTruncated when the file ends before.
  Status ReadAt(uint64_t offset, std::span<std::byte> out) const;

 private:
  InputFile(int fd, uint64_t size, std::string path)
      : fd_(fd), size_(size), path_(std::move(path)) {}
  int fd_ = -1;
  uint64_t size_ = 0;
  std::string path_;
};

// The whole file; kTooLarge beyond `max_bytes`.
Result<std::string> ReadTextFile(const std::string& path, uint64_t max_bytes);

// A file written under a temporary name in its own folder, which appears under `path` when Commit()
// succeeds. Without Commit() nothing is left. Not thread-safe. Permissions: 0664 & ~umask.
class AtomicFile {
 public:
  // Errors: kNotFound (no such folder), kNotRegularFile (a folder,
  // device or pipe stands there), kPermission, kNoSpace, kIo.
  static Result<AtomicFile> Create(const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  ~AtomicFile();

  const std::string& path() const { return path_; }
  const std::string& temporary_path() const {
    return temporary_;
  }  // for libraries that want a name to write to
  int fd() const { return fd_; }

  Status Write(std::string_view data);  // buffered, 1 MiB
  Status Flush();
  Status Commit();  // flush, close, rename over `path`

 private:
  AtomicFile() = default;
  void Discard();
  int fd_ = -1;
  std::string path_;
  std::string temporary_;
  std::string buffer_;
};

// Writes all of `data` to `fd`. Errors: kNoSpace, kIo.
Status WriteAll(int fd, std::string_view data);

// mkdir -p with mode 0775 & ~umask. kNotRegularFile when a part exists and is no folder;
// kPermission; kNoSpace; kIo.
Status CreateDirectories(const std::string& path);

bool PathExists(const std::string& path);
bool IsDirectory(const std::string& path);

// `relative` taken from inside a file, resolved under `root`. kPathEscape when it is absolute,
// contains "..", or leads outside `root` through a link; kNotFound when nothing is there. The
// result is a path below the real path of `root`.
Result<std::string> ResolveInside(const std::string& root, std::string_view relative);

// dir + '/' + name, without doubling the slash; `name` alone when `dir` is empty.
std::string JoinPath(std::string_view dir, std::string_view name);
std::string_view BaseName(std::string_view path);
std::string DirName(std::string_view path);  // "." when there is no slash

// Error for errno `err` after doing `what` ("open", "read", "rename") on `path`.
Error ErrnoError(int err, std::string_view what, const std::string& path);

}  // namespace msprobe
