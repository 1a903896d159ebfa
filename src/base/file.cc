#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace msprobe {
namespace {

constexpr size_t kWriteBuffer = 1 << 20;

ErrorCode CodeOfErrno(int err) {
  switch (err) {
    case ENOENT:
    case ENOTDIR:
      return ErrorCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return ErrorCode::kPermission;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return ErrorCode::kNoSpace;
    case EISDIR:
    case ELOOP:
    case ENXIO:
      return ErrorCode::kNotRegularFile;
    default:
      return ErrorCode::kIo;
  }
}

Result<std::string> RealPath(const std::string& path) {
  char* real = realpath(path.c_str(), nullptr);
  if (real == nullptr) return ErrnoError(errno, "resolve", path);
  std::string out(real);
  std::free(real);  // NOLINT: realpath allocates with malloc
  return out;
}

std::string_view KindOfMode(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "not a regular file";
}

}  // namespace

Error ErrnoError(int err, std::string_view what, const std::string& path) {
  const ErrorCode code = CodeOfErrno(err);
  if (code == ErrorCode::kNotFound) return Error(code, "no such file or directory").At(path);
  return Error(code, fmt::format("cannot {}: {}", what, std::strerror(err))).At(path);
}

// ---- InputFile
// -----------------------------------------------------------------------------------

Result<InputFile> InputFile::Open(const std::string& path) {
  if (path.find('\0') != std::string::npos)
    return Error(ErrorCode::kNotFound, "the name contains a NUL byte").At(path);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return ErrnoError(errno, "open", path);
  struct stat st{};
  if (fstat(fd, &st) != 0) {
    const int err = errno;
    close(fd);
    return ErrnoError(err, "stat", path);
  }
  if (!S_ISREG(st.st_mode)) {
    close(fd);
    return Error(ErrorCode::kNotRegularFile, fmt::format("is {}", KindOfMode(st.st_mode)))
        .At(path)
        .Hint("a regular file is expected");
  }
  return InputFile(fd, static_cast<uint64_t>(st.st_size), path);
}

InputFile::InputFile(InputFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), size_(other.size_), path_(std::move(other.path_)) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = std::exchange(other.fd_, -1);
    size_ = other.size_;
    path_ = std::move(other.path_);
  }
  return *this;
}

InputFile::~InputFile() {
  if (fd_ >= 0) close(fd_);
}

Status InputFile::ReadAt(uint64_t offset, std::span<std::byte> out) const {
  size_t done = 0;
  while (done < out.size()) {
    const uint64_t at = offset + done;
    if (at > static_cast<uint64_t>(INT64_MAX))
      return Error(ErrorCode::kTruncated, "offset beyond the end of the file")
          .At(path_)
          .AtOffset(at);
    const ssize_t n = pread(fd_, out.data() + done, out.size() - done, static_cast<off_t>(at));
    if (n < 0) {
      if (errno == EINTR) continue;
      return ErrnoError(errno, "read", path_);
    }
    if (n == 0) {
      return Error(ErrorCode::kTruncated,
                   fmt::format("ends at byte {}, {} more expected", at, out.size() - done))
          .At(path_)
          .AtOffset(at);
    }
    done += static_cast<size_t>(n);
  }
  return {};
}

Result<std::string> ReadTextFile(const std::string& path, uint64_t max_bytes) {
  MSPROBE_ASSIGN(const InputFile file, InputFile::Open(path));
  if (file.size() > max_bytes) {
    return Error(ErrorCode::kTooLarge,
                 fmt::format("{} bytes, the limit is {}", file.size(), max_bytes))
        .At(path);
  }
  std::string text(file.size(), '\0');
  MSPROBE_TRY(file.ReadAt(0, std::as_writable_bytes(std::span(text.data(), text.size()))));
  return text;
}

// ---- AtomicFile
// ----------------------------------------------------------------------------------

Result<AtomicFile> AtomicFile::Create(const std::string& path) {
  static std::atomic<uint64_t> serial{0};
  // A rename would put a file in the place of a device or pipe.
  struct stat there = {};
  if (stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) {
    return Error(ErrorCode::kNotRegularFile, fmt::format("is {}", KindOfMode(there.st_mode)))
        .At(path)
        .Hint("the name of a file is expected, new or old");
  }
  AtomicFile file;
  file.path_ = path;
  for (int attempt = 0; attempt < 100; ++attempt) {
    file.temporary_ = JoinPath(
        DirName(path), fmt::format(".{}.{}.{}.tmp", std::string(BaseName(path)).substr(0, 200),
                                   getpid(), serial.fetch_add(1, std::memory_order_relaxed)));
    file.fd_ =
        open(file.temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0664);
    if (file.fd_ >= 0) return file;
    if (errno != EEXIST) break;
  }
  return ErrnoError(errno, "create", path);
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      buffer_(std::move(other.buffer_)) {}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  if (this != &other) {
    Discard();
    fd_ = std::exchange(other.fd_, -1);
    path_ = std::move(other.path_);
    temporary_ = std::exchange(other.temporary_, {});
    buffer_ = std::move(other.buffer_);
  }
  return *this;
}

AtomicFile::~AtomicFile() { Discard(); }

void AtomicFile::Discard() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
  if (!temporary_.empty()) unlink(temporary_.c_str());
  temporary_.clear();
}

Status WriteAll(int fd, std::string_view data) {
  while (!data.empty()) {
    const ssize_t n = write(fd, data.data(), data.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return Error(CodeOfErrno(errno), fmt::format("cannot write: {}", std::strerror(errno)));
    }
    data.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

Status AtomicFile::Write(std::string_view data) {
  if (buffer_.size() + data.size() > kWriteBuffer) {
    MSPROBE_TRY(Flush());
    if (data.size() >= kWriteBuffer) {
      Status direct = WriteAll(fd_, data);
      if (!direct.ok()) return std::move(direct).error().At(path_);
      return {};
    }
  }
  buffer_.append(data);
  return {};
}

Status AtomicFile::Flush() {
  Status written = WriteAll(fd_, buffer_);
  buffer_.clear();
  if (!written.ok()) return std::move(written).error().At(path_);
  return {};
}

Status AtomicFile::Commit() {
  MSPROBE_TRY(Flush());
  if (close(std::exchange(fd_, -1)) != 0) return ErrnoError(errno, "close", path_);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) return ErrnoError(errno, "rename", path_);
  temporary_.clear();
  return {};
}

// ---- folders and names
// ---------------------------------------------------------------------------

Status CreateDirectories(const std::string& path) {
  if (path.empty()) return Error(ErrorCode::kInvalidArgument, "the name of a folder is empty");
  for (size_t k = 1; k <= path.size(); ++k) {
    if (k < path.size() && path[k] != '/') continue;
    const std::string part = path.substr(0, k);
    if (mkdir(part.c_str(), 0775) == 0 || IsDirectory(part)) continue;
    const int err = errno;
    if (err == EEXIST || err == ENOTDIR) {
      return Error(ErrorCode::kNotRegularFile, "exists and is not a folder")
          .At(part)
          .Hint("choose another output folder");
    }
    return ErrnoError(err, "create the folder", part);
  }
  return {};
}

bool PathExists(const std::string& path) {
  struct stat st{};
  return lstat(path.c_str(), &st) == 0;
}

bool IsDirectory(const std::string& path) {
  struct stat st{};
  return stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}

Result<std::string> ResolveInside(const std::string& root, std::string_view relative) {
  const auto escape = [&](std::string_view why) {
    return Error(ErrorCode::kPathEscape, fmt::format("the name \"{}\" {}", relative, why)).At(root);
  };
  if (relative.empty()) return escape("is empty");
  if (relative.front() == '/') return escape("is absolute");
  if (relative.find('\0') != std::string_view::npos) return escape("contains a NUL byte");
  for (std::string_view rest = relative; !rest.empty();) {
    const size_t k = rest.find('/');
    if (rest.substr(0, k) == "..") return escape("leads out of its folder");
    rest = k == std::string_view::npos ? std::string_view() : rest.substr(k + 1);
  }
  MSPROBE_ASSIGN(std::string base, RealPath(root));
  if (base != "/") base += '/';
  // A plain file that lies right there leads nowhere else; names of tensor files are of this kind.
  if (struct stat st{}; relative.find('/') == std::string_view::npos && relative != "." &&
                        lstat((base + std::string(relative)).c_str(), &st) == 0 &&
                        S_ISREG(st.st_mode)) {
    return base + std::string(relative);
  }
  MSPROBE_ASSIGN(std::string real, RealPath(JoinPath(root, relative)));
  if (!real.starts_with(base)) return escape("leads out of its folder through a link");
  return real;
}

std::string JoinPath(std::string_view dir, std::string_view name) {
  if (dir.empty()) return std::string(name);
  std::string out(dir);
  if (out.back() != '/') out += '/';
  return out.append(name);
}

std::string_view BaseName(std::string_view path) {
  const size_t k = path.rfind('/');
  return k == std::string_view::npos ? path : path.substr(k + 1);
}

std::string DirName(std::string_view path) {
  const size_t k = path.rfind('/');
  if (k == std::string_view::npos) return ".";
  return k == 0 ? "/" : std::string(path.substr(0, k));
}

}  // namespace msprobe
