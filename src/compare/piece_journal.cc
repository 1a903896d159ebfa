#include "compare/piece_journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <span>
#include <type_traits>

#include "base/file.h"
#include "base/time.h"
#include "kernels/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace msprobe::compare {
namespace {

// Header: this text, the tool's version, a line feed, the size of a record as 8 digits, a line
// feed.
constexpr std::string_view kMagic = "msprobe pieces 1 ";
constexpr size_t kFlushBytes = 16 << 10;
constexpr double kFlushSeconds = 1;

struct Record {
  PieceJournal::Key key;
  PairResult result;
};
static_assert(std::is_trivially_copyable_v<Record>, "records are written as they lie in memory");
constexpr size_t kRecordBytes = sizeof(Record) + sizeof(uint32_t);  // and its checksum

std::string Header() { return fmt::format("{}{}\n{:08}\n", kMagic, MSPROBE_VERSION, kRecordBytes); }

uint32_t Sum(const char* bytes) {
  return kernels::Crc32(0, reinterpret_cast<const std::byte*>(bytes), sizeof(Record));
}

bool Describe(const std::string& path, std::string& out) {
  struct stat s;
  if (stat(path.c_str(), &s) != 0) return false;
  out += fmt::format("{}\n{} {} {} {}\n", path, s.st_ino, s.st_size, s.st_mtim.tv_sec,
                     s.st_mtim.tv_nsec);
  return true;
}

}  // namespace

std::optional<PieceJournal::Key> PieceJournal::KeyOf(const std::string& target,
                                                     const std::string& golden, int64_t first,
                                                     int64_t count) {
  std::string text;
  if (!Describe(target, text) || !Describe(golden, text)) return std::nullopt;
  text += fmt::format("{} {}", first, count);
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return Key{hash.low64, hash.high64};
}

std::unique_ptr<PieceJournal> PieceJournal::Open(const std::string& path, bool resume) {
  std::unique_ptr<PieceJournal> out(new PieceJournal(path));
  out->flushed_ = MonotonicSeconds();
  if (!out->OpenFile(false)) return PathExists(path) ? nullptr : std::move(out);
  if (resume) {
    out->Read();
  } else if (ftruncate(out->fd_, 0) != 0) {
    return nullptr;
  }
  return out;
}

std::string PieceJournal::Joined(std::span<const std::string> journals) {
  std::string out = Header();
  for (const std::string& journal : journals) {
    if (journal.starts_with(Header())) out += journal.substr(Header().size());
  }
  return out;
}

PieceJournal::~PieceJournal() {
  Flush();
  if (fd_ >= 0) close(fd_);
}

bool PieceJournal::OpenFile(bool make) {
  const int fd = open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | (make ? O_CREAT : 0), 0600);
  if (fd < 0) return false;
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    close(fd);
    return false;
  }
  fd_ = fd;
  return true;
}

// Reads what is whole and cuts off the rest.
void PieceJournal::Read() {
  const std::string header = Header();
  std::string bytes(header.size(), '\0');
  off_t good = 0;
  if (pread(fd_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()) &&
      bytes == header) {
    good = static_cast<off_t>(header.size());
    char raw[kRecordBytes];
    while (pread(fd_, raw, sizeof raw, good) == static_cast<ssize_t>(sizeof raw)) {
      uint32_t sum = 0;
      std::memcpy(&sum, raw + sizeof(Record), sizeof sum);
      if (sum != Sum(raw)) break;
      Record record;
      std::memcpy(&record, raw, sizeof record);
      pieces_.insert_or_assign(record.key, record.result);
      good += static_cast<off_t>(sizeof raw);
    }
  }
  known_ = pieces_.size();
  broken_ = ftruncate(fd_, good) != 0 || lseek(fd_, good, SEEK_SET) < 0;
}

std::optional<PairResult> PieceJournal::Find(const Key& key) const {
  // Only Open() changes the map.
  const auto it = pieces_.find(key);
  if (it == pieces_.end()) return std::nullopt;
  return it->second;
}

void PieceJournal::Add(const Key& key, const PairResult& result) {
  // Padding must not differ from run to run.
  char raw[kRecordBytes] = {};
  const Record record = {key, result};
  std::memcpy(raw, &record, sizeof record);
  const uint32_t sum = Sum(raw);
  std::memcpy(raw + sizeof record, &sum, sizeof sum);
  const std::lock_guard lock(mutex_);
  if (broken_) return;
  buffer_.append(raw, sizeof raw);
  if (buffer_.size() >= kFlushBytes || MonotonicSeconds() - flushed_ >= kFlushSeconds) Flush();
}

void PieceJournal::Flush() {
  if (buffer_.empty() || broken_) return;
  flushed_ = MonotonicSeconds();
  if (fd_ < 0 && !OpenFile(true)) {
    broken_ = true;
    return;
  }
  const off_t at = lseek(fd_, 0, SEEK_END);
  const std::string text = (at == 0 ? Header() : std::string()) + buffer_;
  buffer_.clear();
  if (at >= 0 && WriteAll(fd_, text).ok()) return;
  broken_ = true;
  if (at >= 0 && ftruncate(fd_, at) != 0) return;  // a torn record ends the list for readers, too
}

void PieceJournal::Remove() {
  const std::lock_guard lock(mutex_);
  buffer_.clear();
  broken_ = true;
  if (fd_ >= 0) unlink(path_.c_str());
}

}  // namespace msprobe::compare
