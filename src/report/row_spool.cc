#include "report/row_spool.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/file.h"

namespace msprobe::report {
namespace {

// A row is: uint32 bytes after this header, uint32 cells, uint8 mark; then per cell uint8 kind and
// 8 bytes of value, where the value of a text is its length and the bytes follow.
constexpr size_t kHeaderBytes = 4 + 4 + 1;
constexpr size_t kCellBytes = 1 + 8;

template <class T>
T Get(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

}  // namespace

Status RowSpool::Add(std::span<const Cell> cells, Mark mark) {
  size_t body = cells.size() * kCellBytes;
  for (const Cell& cell : cells) {
    if (cell.kind == Cell::Kind::kText) body += cell.text.size();
  }
  if (body > UINT32_MAX) return Error(ErrorCode::kTooLarge, "a row of more than 4 GiB");
  Put(static_cast<uint32_t>(body));
  Put(static_cast<uint32_t>(cells.size()));
  Put(static_cast<uint8_t>(mark));
  for (const Cell& cell : cells) {
    Put(static_cast<uint8_t>(cell.kind));
    switch (cell.kind) {
      case Cell::Kind::kText:
        Put(static_cast<uint64_t>(cell.text.size()));
        buffer_ += cell.text;
        break;
      case Cell::Kind::kDouble:
        Put(cell.d);
        break;
      case Cell::Kind::kBool:
        Put(static_cast<uint64_t>(cell.b));
        break;
      case Cell::Kind::kInt:
        Put(cell.i);
        break;
      case Cell::Kind::kUint:
        Put(cell.u);
        break;
      case Cell::Kind::kEmpty:
        Put(uint64_t{0});
        break;
    }
  }
  ++rows_;
  return buffer_.size() < kMemoryBytes ? Status() : Spill();
}

Status RowSpool::Spill() {
  if (!file_) {
    std::string name = JoinPath(folder_, ".msprobe-rows-XXXXXX");
    const int fd = mkostemp(name.data(), O_CLOEXEC);
    if (fd < 0) return ErrnoError(errno, "create a temporary file", name);
    unlink(name.c_str());
    file_.reset(fdopen(fd, "w+b"));
    if (!file_) {
      close(fd);
      return ErrnoError(ENOMEM, "open a temporary file", name);
    }
    setvbuf(file_.get(), nullptr, _IONBF, 0);  // buffer_ is the buffer
  }
  if (!buffer_.empty() && fwrite(buffer_.data(), buffer_.size(), 1, file_.get()) != 1) {
    return ErrnoError(errno, "write a temporary file", folder_);
  }
  buffer_.clear();
  return {};
}

Status RowSpool::Rewind() {
  read_ = 0;
  if (!file_) return {};  // everything is still in memory
  MSPROBE_TRY(Spill());
  if (fseek(file_.get(), 0, SEEK_SET) != 0)
    return ErrnoError(errno, "read a temporary file", folder_);
  return {};
}

Status RowSpool::Refill(size_t needed) {
  if (buffer_.size() - read_ >= needed) return {};
  buffer_.erase(0, read_);
  read_ = 0;
  const size_t have = buffer_.size();
  const size_t target = std::max(needed, kMemoryBytes);
  buffer_.resize(target);
  const size_t got = file_ ? fread(buffer_.data() + have, 1, target - have, file_.get()) : 0;
  buffer_.resize(have + got);
  if (buffer_.size() < needed)
    return Error(ErrorCode::kIo, "cannot read back a temporary file").At(folder_);
  return {};
}

Status RowSpool::Next(std::vector<Cell>& cells, Mark& mark) {
  MSPROBE_TRY(Refill(kHeaderBytes));
  const size_t body = Get<uint32_t>(buffer_.data() + read_);
  MSPROBE_TRY(Refill(kHeaderBytes + body));
  const char* at = buffer_.data() + read_;
  const uint32_t count = Get<uint32_t>(at + 4);
  mark = static_cast<Mark>(at[8]);
  at += kHeaderBytes;
  cells.resize(count);
  for (Cell& cell : cells) {
    cell = Cell();
    cell.kind = static_cast<Cell::Kind>(*at);
    const char* value = at + 1;
    at += kCellBytes;
    switch (cell.kind) {
      case Cell::Kind::kText:
        cell.text = {at, Get<uint64_t>(value)};
        at += cell.text.size();
        break;
      case Cell::Kind::kDouble:
        cell.d = Get<double>(value);
        break;
      case Cell::Kind::kBool:
        cell.b = *value != 0;
        break;
      case Cell::Kind::kInt:
        cell.i = Get<int64_t>(value);
        break;
      case Cell::Kind::kUint:
        cell.u = Get<uint64_t>(value);
        break;
      case Cell::Kind::kEmpty:
        break;
    }
  }
  read_ += kHeaderBytes + body;
  return {};
}

}  // namespace msprobe::report
