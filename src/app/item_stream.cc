#include "app/item_stream.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "app/wire.h"
#include "base/file.h"
#include "kernels/checksum.h"

namespace msprobe::app {
namespace {

constexpr uint64_t kMostHead = 1ull << 32;

uint32_t AddSum(uint32_t sum, std::string_view bytes) {
  return kernels::Crc32(sum, reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
}

Error Damaged() { return {ErrorCode::kMalformed, "the result of a worker is damaged"}; }

}  // namespace

Status CopyBlocks(const std::string& path, const std::function<Status(std::string_view)>& take) {
  MSPROBE_ASSIGN(const InputFile file, InputFile::Open(path));
  std::string block;
  for (uint64_t at = 0; at < file.size(); at += block.size()) {
    block.resize(static_cast<size_t>(std::min<uint64_t>(kChunkBytes, file.size() - at)));
    MSPROBE_TRY(file.ReadAt(at, std::as_writable_bytes(std::span(block))));
    MSPROBE_TRY(take(block));
  }
  return {};
}

Status ResultWriter::Head(std::string_view head) {
  std::string size;
  AppendWord(size, head.size());
  MSPROBE_TRY(Text(size));
  return Text(head);
}

Status ResultWriter::Text(std::string_view bytes) {
  sum_ = AddSum(sum_, bytes);
  while (!bytes.empty()) {
    const size_t n = std::min(bytes.size(), kChunkBytes - buffer_.size());
    buffer_ += bytes.substr(0, n);
    bytes.remove_prefix(n);
    if (buffer_.size() < kChunkBytes) break;
    MSPROBE_TRY(emit_(buffer_));
    buffer_.clear();
  }
  return {};
}

Status ResultWriter::File(const std::string& path) {
  return CopyBlocks(path, [&](std::string_view block) { return Text(block); });
}

Status ResultWriter::Finish() {
  std::string sum;
  AppendWord(sum, sum_);
  MSPROBE_TRY(Text(sum));
  return buffer_.empty() ? Status() : emit_(buffer_);
}

Status ResultReader::AddHead(std::string_view& bytes) {
  const auto fill = [&](size_t size) {
    const size_t n = std::min(bytes.size(), size - pending_.size());
    pending_ += bytes.substr(0, n);
    bytes.remove_prefix(n);
    return pending_.size() == size;
  };
  if (pending_.size() < kWord && !fill(kWord)) return {};
  const uint64_t size = WordAt(pending_);
  if (size > kMostHead) return Damaged();
  if (!fill(kWord + static_cast<size_t>(size))) return {};
  sum_ = AddSum(sum_, pending_);
  MSPROBE_ASSIGN(blobs_, taker_.Head(std::string_view(pending_).substr(kWord)));
  has_head_ = true;
  pending_.clear();
  left_ = blobs_.empty() ? 0 : blobs_[0].size;
  return {};
}

Status ResultReader::Add(std::string_view bytes) {
  if (!has_head_) MSPROBE_TRY(AddHead(bytes));
  if (!has_head_) return {};
  while (blob_ < blobs_.size()) {
    const auto n = static_cast<size_t>(std::min<uint64_t>(left_, bytes.size()));
    if (n > 0) MSPROBE_TRY(taker_.Blob(blobs_[blob_], bytes.substr(0, n)));
    sum_ = AddSum(sum_, bytes.substr(0, n));
    bytes.remove_prefix(n);
    left_ -= n;
    if (left_ > 0) return {};
    if (++blob_ < blobs_.size()) left_ = blobs_[blob_].size;
  }
  pending_ += bytes;
  return pending_.size() > kWord ? Status(Damaged()) : Status();
}

Status ResultReader::Finish() const {
  if (!has_head_ || blob_ < blobs_.size() || pending_.size() != kWord) {
    return Error(ErrorCode::kTruncated, "the result of a worker ends early");
  }
  return WordAt(pending_) == sum_ ? Status() : Status(Damaged());
}

}  // namespace msprobe::app
