#include "dump/writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/file.h"
#include "json/json.h"

namespace msprobe::dump {
namespace {

// All of `data` at `offset`.
Status WriteAt(int fd, uint64_t offset, std::string_view data, const std::string& path) {
  while (!data.empty()) {
    const ssize_t n = pwrite(fd, data.data(), data.size(), static_cast<off_t>(offset));
    if (n < 0) {
      if (errno == EINTR) continue;
      return ErrnoError(errno, "write", path);
    }
    if (n == 0) return ErrnoError(ENOSPC, "write", path);
    data.remove_prefix(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return {};
}

Result<int> OpenTemporary(const std::string& path, std::string& temporary) {
  static std::atomic<uint64_t> serial{0};
  temporary = JoinPath(DirName(path), fmt::format(".{}.{}.{}.tmp", BaseName(path), getpid(),
                                                  serial.fetch_add(1, std::memory_order_relaxed)));
  const int fd = open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0664);
  if (fd < 0) return ErrnoError(errno, "create", path);
  return fd;
}

}  // namespace

struct GrowingObject::Rep {
  int fd = -1;
  std::string path, head, tail;
  std::string indent;  // line break and blanks before a member
  uint64_t head_bytes = 0;
  uint64_t valid = 0;    // end of the last flushed member (or of the head): where the tail stands
  uint64_t size = 0;     // of the file
  uint64_t flushed = 0;  // members in the file
  std::string pending;   // members since, each with its separator before it
  std::vector<size_t> starts;  // where each pending member begins in `pending`

  std::string Ending(bool any_member) const {
    std::string text;
    if (any_member) text.assign(indent, 0, indent.size() - 1);
    return text + tail;
  }

  void PutMember(std::string& out, bool first, std::string_view key, std::string_view value) const {
    if (!first) out += ',';
    out += indent;
    json::AppendString(out, key);
    out += ": ";
    out += value;
  }

  // Writes `text` (pending members and an ending) at the old tail, or leaves the file as it was.
  Status Replace(const std::string& text) {
    const uint64_t end = valid + text.size();
    // Space is taken before the old tail is overwritten, so that a full disk cannot tear the file.
    // File systems that cannot reserve say so and the write itself decides.
    if (end > size && fallocate(fd, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(size),
                                static_cast<off_t>(end - size)) != 0) {
      const int err = errno;
      if (err == ENOSPC || err == EDQUOT || err == EFBIG) return ErrnoError(err, "write", path);
    }
    Status written = WriteAt(fd, valid, text, path);
    if (!written.ok()) {
      (void)!ftruncate(fd, static_cast<off_t>(size));
      // Blocks of the old tail are still allocated; nothing more can be done if even this fails.
      (void)WriteAt(fd, valid, Ending(flushed > 0), path).ok();
      return written;
    }
    if (end < size && ftruncate(fd, static_cast<off_t>(end)) != 0)
      return ErrnoError(errno, "shorten", path);
    size = end;
    return {};
  }

  bool Removed() const {
    struct stat info{};
    return fd >= 0 && fstat(fd, &info) == 0 && info.st_nlink == 0;
  }

  Status Flush() {
    if (fd < 0) return Error(ErrorCode::kInternal, "the file is closed").At(path);
    if (Removed())
      return Error(ErrorCode::kNotFound, "was removed while it was being written").At(path);
    const bool any = flushed + starts.size() > 0;
    const size_t members = pending.size();
    pending += Ending(any);
    Status written = Replace(pending);
    pending.resize(members);
    if (!written.ok()) return written;
    valid += members;
    flushed += starts.size();
    pending.clear();
    starts.clear();
    return {};
  }

  ~Rep() {
    if (fd >= 0) close(fd);
  }
};

GrowingObject::GrowingObject() : rep_(std::make_unique<Rep>()) {}
GrowingObject::GrowingObject(GrowingObject&&) noexcept = default;
GrowingObject& GrowingObject::operator=(GrowingObject&&) noexcept = default;
GrowingObject::~GrowingObject() = default;

Result<GrowingObject> GrowingObject::Create(const std::string& path, std::string head,
                                            std::string tail, int member_indent) {
  GrowingObject object;
  Rep& rep = *object.rep_;
  rep.path = path;
  rep.head = std::move(head);
  rep.tail = std::move(tail);
  rep.indent.assign(1, '\n').append(static_cast<size_t>(member_indent), ' ');
  rep.head_bytes = rep.valid = rep.head.size();
  rep.size = rep.head.size() + rep.tail.size();
  std::string temporary;
  MSPROBE_ASSIGN(rep.fd, OpenTemporary(path, temporary));
  Status written = WriteAt(rep.fd, 0, rep.head + rep.tail, path);
  if (written.ok() && rename(temporary.c_str(), path.c_str()) != 0)
    written = ErrnoError(errno, "rename", path);
  if (!written.ok()) {
    unlink(temporary.c_str());
    return std::move(written).error();
  }
  return object;
}

GrowingObject::MemberId GrowingObject::Append(std::string_view key, std::string_view value) {
  Rep& rep = *rep_;
  const MemberId id = rep.flushed + rep.starts.size();
  rep.starts.push_back(rep.pending.size());
  rep.PutMember(rep.pending, id == 0, key, value);
  return id;
}

bool GrowingObject::Replace(MemberId member, std::string_view key, std::string_view value) {
  Rep& rep = *rep_;
  if (member < rep.flushed || member >= rep.flushed + rep.starts.size()) return false;
  const size_t k = member - rep.flushed;
  const size_t begin = rep.starts[k];
  const size_t end = k + 1 < rep.starts.size() ? rep.starts[k + 1] : rep.pending.size();
  std::string text;
  rep.PutMember(text, member == 0, key, value);
  rep.pending.replace(begin, end - begin, text);
  for (size_t j = k + 1; j < rep.starts.size(); ++j) rep.starts[j] += text.size() - (end - begin);
  return true;
}

bool GrowingObject::DropLast(MemberId member) {
  Rep& rep = *rep_;
  if (rep.starts.empty() || member + 1 != rep.flushed + rep.starts.size()) return false;
  rep.pending.resize(rep.starts.back());
  rep.starts.pop_back();
  return true;
}

void GrowingObject::DropPending() {
  rep_->pending.clear();
  rep_->starts.clear();
}

size_t GrowingObject::pending_bytes() const { return rep_->pending.size(); }
uint64_t GrowingObject::pending_members() const { return rep_->starts.size(); }
bool GrowingObject::removed() const { return rep_->Removed(); }
uint64_t GrowingObject::members() const { return rep_->flushed + rep_->starts.size(); }
uint64_t GrowingObject::bytes() const { return rep_->size; }
const std::string& GrowingObject::path() const { return rep_->path; }

Status GrowingObject::Flush() { return rep_->Flush(); }

Status GrowingObject::Close(std::string tail) {
  Rep& rep = *rep_;
  std::string old = std::exchange(rep.tail, std::move(tail));
  Status written = rep.Flush();
  if (!written.ok()) {
    // Without the members there may still be room for the new ending, but "complete" would be a lie
    // then: the old one stays.
    rep.tail = std::move(old);
    return written;
  }
  if (close(std::exchange(rep.fd, -1)) != 0) return ErrnoError(errno, "close", rep.path);
  return {};
}

Status GrowingObject::Rebase(const std::string& path, std::string head) {
  Rep& rep = *rep_;
  rep.path = path;
  std::string temporary;
  MSPROBE_ASSIGN(const int fd, OpenTemporary(path, temporary));
  const auto copy = [&]() -> Status {
    MSPROBE_TRY(WriteAt(fd, 0, head, path));
    std::string block(1 << 20, '\0');
    for (uint64_t at = rep.head_bytes; at < rep.size;) {
      const size_t want = std::min<uint64_t>(block.size(), rep.size - at);
      const ssize_t n = pread(rep.fd, block.data(), want, static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoError(errno, "read", path);
      if (n == 0) return Error(ErrorCode::kTruncated, "became shorter while open").At(path);
      const std::string_view part(block.data(), static_cast<size_t>(n));
      MSPROBE_TRY(WriteAt(fd, head.size() + at - rep.head_bytes, part, path));
      at += part.size();
    }
    if (rename(temporary.c_str(), path.c_str()) != 0) return ErrnoError(errno, "rename", path);
    return {};
  };
  Status copied = copy();
  if (!copied.ok()) {
    unlink(temporary.c_str());
    close(fd);
    return copied;
  }
  close(std::exchange(rep.fd, fd));
  rep.valid = rep.valid - rep.head_bytes + head.size();
  rep.size = rep.size - rep.head_bytes + head.size();
  rep.head_bytes = head.size();
  rep.head = std::move(head);
  return {};
}

void GrowingObject::Abandon() {
  if (rep_->fd >= 0) close(std::exchange(rep_->fd, -1));
  DropPending();
}

}  // namespace msprobe::dump
