#include "collect/tensor_store.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <utility>

#include "base/file.h"
#include "formats/tensor_file.h"

namespace msprobe::collect {
namespace {

constexpr size_t kLongestStem = 200, kKeptHead = 110, kKeptTail = 60;
constexpr size_t kSpare = 16, kLargestSpare = 16 << 20;  // buffers that wait for another use

bool IsPlain(unsigned char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-';
}

struct CodePoint {
  uint32_t value = 0;
  size_t bytes = 0;  // 0: not UTF-8
};

CodePoint Decode(std::string_view text) {
  const auto byte = [&](size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned char lead = byte(0);
  const size_t n = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 0;
  if (n == 0 || lead > 0xF4 || text.size() < n) return {};
  uint32_t value = lead & (0xFFu >> (n + 1));
  for (size_t k = 1; k < n; ++k) {
    if ((byte(k) & 0xC0) != 0x80) return {};
    value = value << 6 | (byte(k) & 0x3Fu);
  }
  const uint32_t least = n == 4 ? 0x10000 : n == 3 ? 0x800 : 0x80;
  if (value < least || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return {};
  return {value, n};
}

// Letters, marks and digits of the scripts in use; blocks of punctuation, symbols, controls,
// private use and emoji are not.
bool IsLetter(uint32_t c) {
  if (c == 0xAA || c == 0xB5 || c == 0xBA) return true;
  if (c < 0xC0 || c == 0xD7 || c == 0xF7) return false;
  struct Range {
    uint32_t first, last;
  };
  static constexpr Range kNot[] = {{0x2000, 0x2BFF},   {0x2E00, 0x2FFF},   {0x3000, 0x3004},
                                   {0x3008, 0x3020},   {0x3030, 0x3030},   {0xD800, 0xF8FF},
                                   {0xFE00, 0xFE6F},   {0xFEFF, 0xFF0F},   {0xFF1A, 0xFF20},
                                   {0xFF3B, 0xFF40},   {0xFF5B, 0xFF65},   {0xFFE0, 0xFFFF},
                                   {0x1D000, 0x1D3FF}, {0x1F000, 0x1FBFF}, {0xE0000, 0x10FFFF}};
  return std::none_of(std::begin(kNot), std::end(kNot),
                      [&](const Range& r) { return c >= r.first && c <= r.last; });
}

std::string Escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto c = static_cast<unsigned char>(text.front());
    size_t take = 1;
    bool keep = IsPlain(c);
    if (c >= 0x80) {
      const CodePoint point = Decode(text);
      keep = point.bytes > 0 && IsLetter(point.value);
      take = std::max<size_t>(point.bytes, 1);
    }
    if (keep) {
      out += text.substr(0, take);
    } else {
      for (const char b : text.substr(0, take))
        out += fmt::format("%{:02X}", static_cast<unsigned char>(b));
    }
    text.remove_prefix(take);
  }
  return out;
}

uint64_t SizeOfFile(const std::string& path) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
}

bool StartsUnit(const std::string& text, size_t at) {  // not inside a UTF-8 sequence or %XX
  if (at >= text.size()) return true;
  if ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) return false;
  return !(at >= 1 && text[at - 1] == '%') && !(at >= 2 && text[at - 2] == '%');
}

}  // namespace

std::string FileStem(std::string_view text) {
  std::string name = Escaped(text);
  if (name == "." || name == "..") name = name == "." ? "%2E" : "%2E%2E";
  if (name.size() <= kLongestStem) return name;
  size_t head = kKeptHead, tail = name.size() - kKeptTail;
  while (!StartsUnit(name, head)) --head;
  while (!StartsUnit(name, tail)) ++tail;
  return fmt::format("{}~{:016x}~{}", std::string_view(name).substr(0, head),
                     XXH3_64bits(text.data(), text.size()), std::string_view(name).substr(tail));
}

void TensorStore::Open(std::string dir) {
  const std::lock_guard lock(mutex_);
  dir_ = std::move(dir);
  if (!off_) said_ = false;  // went well in the step before
  made_ = off_ = false;
  bytes_ = 0;
  taken_.clear();
}

void TensorStore::Move(std::string dir) {
  const std::lock_guard lock(mutex_);
  dir_ = std::move(dir);
}

uint64_t TensorStore::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::string TensorStore::UniqueName(std::string_view text) {
  std::string stem = FileStem(text);
  std::string lower = stem;
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  std::vector<std::string>& same = taken_[std::move(lower)];
  const auto it = std::find(same.begin(), same.end(), stem);
  const size_t number = static_cast<size_t>(it - same.begin()) + 1;
  if (it == same.end()) same.push_back(stem);
  return number == 1 ? stem + ".pt" : fmt::format("{}~{}.pt", stem, number);
}

Status TensorStore::Write(const std::string& dir, const std::string& name, const TensorView& view) {
  static std::atomic<uint64_t> serial{0};
  std::vector<std::byte> copy;
  Bytes data(view.data, static_cast<size_t>(view.num_elements()) * ItemSize(view.dtype));
  if (!view.IsContiguous()) {
    copy.resize(data.size());
    CopyContiguous(view, copy.data());
    data = copy;
  }
  const std::string temporary =
      JoinPath(dir, fmt::format(".{}.{}.tmp", getpid(), serial.fetch_add(1)));
  const std::string path = JoinPath(dir, name);
  Status written = formats::WritePt(temporary, view.dtype, view.shape, false, data);
  if (written.ok() && rename(temporary.c_str(), path.c_str()) != 0)
    written = ErrnoError(errno, "rename", path);
  if (!written.ok()) unlink(temporary.c_str());
  return written;
}

void TensorStore::Failed(const Error& error) {
  if (off_ || (error.code != ErrorCode::kNoSpace && error.code != ErrorCode::kNotFound &&
               error.code != ErrorCode::kPermission && error.code != ErrorCode::kIo))
    return;
  off_ = true;
  if (std::exchange(said_, true)) return;
  log_.Error(fmt::format("{}; tensors are not saved while this lasts, statistics go on",
                         error.ToString()));
}

Status TensorStore::Ready() {
  if (off_) return Error(ErrorCode::kNoSpace, "writing of tensors has stopped");
  if (made_) return {};
  Status made = CreateDirectories(dir_);
  if (!made.ok()) {
    Failed(made.error());
    off_ = true;
    return made;
  }
  made_ = true;
  return {};
}

Result<std::string> TensorStore::Save(std::string_view stem, const TensorView& view) {
  const std::lock_guard lock(mutex_);
  MSPROBE_TRY(Ready());
  std::string name = UniqueName(stem);
  Status written = Write(dir_, name, view);
  if (!written.ok()) {
    Failed(written.error());
    return std::move(written).error();
  }
  bytes_ += SizeOfFile(JoinPath(dir_, name));
  return name;
}

// ---- in the background
// ---------------------------------------------------------------------------------------

TensorStore::~TensorStore() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  work_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void TensorStore::AfterForkInChild() {
  // The object of a thread that is not there can neither be joined nor destroyed.
  if (thread_.joinable()) new (&thread_) std::thread();
}

Result<std::string> TensorStore::Name(std::string_view stem) {
  const std::lock_guard lock(mutex_);
  MSPROBE_TRY(Ready());
  return UniqueName(stem);
}

TensorCopy TensorStore::Copy(const TensorView& view) {
  TensorCopy copy;
  copy.dtype = view.dtype;
  copy.shape.assign(view.shape.begin(), view.shape.end());
  const size_t bytes = static_cast<size_t>(view.num_elements()) * ItemSize(view.dtype);
  {
    // Fresh memory costs more than the copying, so that of files already written is used again.
    const std::lock_guard lock(mutex_);
    const auto fits = std::find_if(spare_.begin(), spare_.end(),
                                   [&](const auto& s) { return s.capacity() >= bytes; });
    if (fits != spare_.end()) {
      copy.bytes = std::move(*fits);
      spare_.erase(fits);
    }
  }
  copy.bytes.resize(bytes);
  CopyContiguous(view, copy.bytes.data());
  return copy;
}

void TensorStore::Recycle(TensorCopy copy) {
  const std::lock_guard lock(mutex_);
  if (spare_.size() < kSpare && copy.bytes.capacity() <= kLargestSpare)
    spare_.push_back(std::move(copy.bytes));
}

TensorStore::Ticket TensorStore::QueueCopy(std::string name, TensorCopy copy) {
  std::unique_lock lock(mutex_);
  const size_t bytes = copy.bytes.size();
  progress_.wait(
      lock, [&] { return queue_.empty() || (bytes <= limit_ && queued_bytes_ <= limit_ - bytes); });
  if (!thread_.joinable()) thread_ = std::thread(&TensorStore::Run, this);
  queue_.push_back({std::move(name), std::move(copy)});
  queued_bytes_ += bytes;
  const Ticket ticket = ++last_;
  lock.unlock();
  work_.notify_one();
  return ticket;
}

Result<TensorStore::Queued> TensorStore::Queue(std::string_view stem, const TensorView& view) {
  MSPROBE_ASSIGN(std::string name, Name(stem));
  const Ticket ticket = QueueCopy(name, Copy(view));
  return Queued{std::move(name), ticket};
}

void TensorStore::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return ending_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Job& job = queue_.front();
    Status written =
        off_ ? Status(Error(ErrorCode::kNoSpace, "writing of tensors has stopped")) : Status();
    if (!off_) {
      const std::string dir = dir_;
      lock.unlock();
      TensorView view;
      view.data = job.copy.bytes.data();
      view.dtype = job.copy.dtype;
      view.shape = job.copy.shape;
      written = Write(dir, job.name, view);
      const uint64_t size = written.ok() ? SizeOfFile(JoinPath(dir, job.name)) : 0;
      lock.lock();
      bytes_ += size;
    }
    ++finished_;
    if (!written.ok()) {
      Failed(written.error());
      failures_.emplace(finished_, std::move(written).error());
    }
    queued_bytes_ -= job.copy.bytes.size();
    if (spare_.size() < kSpare && job.copy.bytes.capacity() <= kLargestSpare)
      spare_.push_back(std::move(job.copy.bytes));
    queue_.pop_front();
    progress_.notify_all();
  }
}

size_t TensorStore::queued_bytes() const {
  const std::lock_guard lock(mutex_);
  return queued_bytes_;
}

TensorStore::Ticket TensorStore::finished() const {
  const std::lock_guard lock(mutex_);
  return finished_;
}

std::optional<Error> TensorStore::TakeFailure(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  const auto it = failures_.find(ticket);
  if (it == failures_.end()) return std::nullopt;
  std::optional<Error> error = std::move(it->second);
  failures_.erase(it);
  return error;
}

void TensorStore::Drain() {
  std::unique_lock lock(mutex_);
  progress_.wait(lock, [&] { return queue_.empty(); });
}

bool TensorStore::DrainFor(double seconds) {
  std::unique_lock lock(mutex_);
  return progress_.wait_for(lock, std::chrono::duration<double>(seconds),
                            [&] { return queue_.empty(); });
}

}  // namespace msprobe::collect
