#include "dump/journal.h"

#include <fcntl.h>
#include <libdeflate.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/file.h"

namespace msprobe::dump {
namespace {

constexpr char kMagic[8] = {'M', 'S', 'P', 'J', 'R', 'N', 'L', '1'};
constexpr size_t kGenerationAt = 8, kSizesAt = 16, kRecordsAt = 64, kRecordHead = 8,
                 kPayloadHead = 8;
constexpr size_t kPopulateUpTo = 64u << 20;
constexpr uint64_t kLargest = 4ull << 30;
constexpr uint32_t kLargestRecord = 256u << 20;

size_t Padded(size_t bytes) { return (bytes + 7) & ~size_t{7}; }

uint32_t RecordCrc(uint64_t generation, const std::byte* payload, size_t bytes) {
  uint32_t crc = libdeflate_crc32(0, &generation, sizeof generation);
  return libdeflate_crc32(crc, payload, bytes);
}

template <class T>
void Put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

template <class T>
T Get(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace

// ---- writing
// ---------------------------------------------------------------------------------------

Result<JournalWriter> JournalWriter::Create(int fd, size_t capacity, uint64_t dump_size) {
  JournalWriter writer;
  writer.size_ = kRecordsAt + Padded(capacity);
  // Emptied first, so that nothing of an earlier run can be taken for ours.
  if (ftruncate(fd, 0) != 0) return ErrnoError(errno, "shorten", kJournalName);
  if (const int err = posix_fallocate(fd, 0, static_cast<off_t>(writer.size_)); err != 0) {
    (void)!ftruncate(fd, 0);
    return ErrnoError(err, "reserve space for", kJournalName);
  }
  const int populate = writer.size_ <= kPopulateUpTo ? MAP_POPULATE : 0;
  void* base = mmap(nullptr, writer.size_, PROT_READ | PROT_WRITE, MAP_SHARED | populate, fd, 0);
  if (base == MAP_FAILED) return ErrnoError(errno, "map", kJournalName);
  writer.base_ = static_cast<std::byte*>(base);
  std::memcpy(writer.base_, kMagic, sizeof kMagic);
  writer.Reset(dump_size);
  return writer;
}

JournalWriter::JournalWriter(JournalWriter&& other) noexcept { *this = std::move(other); }

JournalWriter& JournalWriter::operator=(JournalWriter&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(size_, other.size_);
  std::swap(at_, other.at_);
  std::swap(generation_, other.generation_);
  return *this;
}

JournalWriter::~JournalWriter() {
  if (base_ != nullptr) munmap(base_, size_);
}

void JournalWriter::Reset(uint64_t dump_size) {
  // One store of eight bytes decides: before it the old records and the old size hold, after it
  // none and the new size.
  Put(base_ + kSizesAt + 8 * ((generation_ + 1) % 2), dump_size);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  Put(base_ + kGenerationAt, ++generation_);
  at_ = kRecordsAt;
}

bool JournalWriter::Append(RecordKind kind, std::string_view name, std::string_view value) {
  const size_t bytes = kPayloadHead + name.size() + value.size();
  if (bytes > kLargestRecord || at_ + kRecordHead + Padded(bytes) > size_) return false;
  std::byte* payload = base_ + at_ + kRecordHead;
  Put(payload, static_cast<uint32_t>(kind));
  Put(payload + 4, static_cast<uint32_t>(name.size()));
  std::memcpy(payload + kPayloadHead, name.data(), name.size());
  std::memcpy(payload + kPayloadHead + name.size(), value.data(), value.size());
  Put(base_ + at_, static_cast<uint32_t>(bytes));
  Put(base_ + at_ + 4, RecordCrc(generation_, payload, bytes));
  at_ += kRecordHead + Padded(bytes);
  return true;
}

// ---- reading
// ---------------------------------------------------------------------------------------

Result<Journal> ReadJournal(const std::string& folder) {
  Journal journal;
  const std::string path = JoinPath(folder, kJournalName);
  if (!PathExists(path)) return journal;
  MSPROBE_ASSIGN(const InputFile file, InputFile::Open(path));
  if (file.size() < kRecordsAt) return journal;
  if (file.size() > kLargest) return Error(ErrorCode::kTooLarge, "a journal beyond 4 GiB").At(path);
  std::vector<std::byte> bytes(kRecordsAt);
  MSPROBE_TRY(file.ReadAt(0, bytes));
  if (std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0) return journal;
  const auto generation = Get<uint64_t>(bytes.data() + kGenerationAt);
  journal.dump_size = Get<uint64_t>(bytes.data() + kSizesAt + 8 * (generation % 2));

  std::vector<std::byte> payload;
  for (uint64_t at = kRecordsAt; at + kRecordHead <= file.size();) {
    std::byte head[kRecordHead];
    MSPROBE_TRY(file.ReadAt(at, head));
    const auto size = Get<uint32_t>(head);
    if (size < kPayloadHead || size > kLargestRecord || size > file.size() - at - kRecordHead)
      break;
    payload.resize(size);
    MSPROBE_TRY(file.ReadAt(at + kRecordHead, payload));
    if (RecordCrc(generation, payload.data(), size) != Get<uint32_t>(head + 4)) break;
    const auto name_size = Get<uint32_t>(payload.data() + 4);
    if (name_size > size - kPayloadHead) break;
    const std::string_view text = AsText(payload).substr(kPayloadHead);
    journal.records.push_back({static_cast<RecordKind>(Get<uint32_t>(payload.data())),
                               std::string(text.substr(0, name_size)),
                               std::string(text.substr(name_size))});
    at += kRecordHead + Padded(size);
  }
  return journal;
}

}  // namespace msprobe::dump
