#include "formats/tensor_file.h"

#include <fmt/format.h>

#include <cstring>
#include <mutex>

#include "formats/contents.h"
#include "formats/gather.h"
#include "formats/npy_header.h"

namespace msprobe::formats {
namespace {

// The formats are told apart by the first bytes.
Status ReadContents(Contents& contents) {
  const uint64_t size = contents.file.size();
  if (size > contents.limits.max_bytes) {
    return Error(ErrorCode::kTooLarge,
                 fmt::format("{} bytes; the limit is {}", size, contents.limits.max_bytes));
  }
  if (size == 0) return Error(ErrorCode::kTruncated, "empty, not a tensor file");
  char buffer[9] = {};
  const size_t n = std::min<size_t>(sizeof(buffer), static_cast<size_t>(size));
  MSPROBE_TRY(contents.file.ReadAt(0, std::as_writable_bytes(std::span(buffer, n))));
  const std::string_view start(buffer, n);
  if (start.starts_with("PK\x03\x04") || start.starts_with("PK\x05\x06")) return ReadZip(contents);
  if (start.starts_with(kNpyMagic)) return ReadNpy(contents);
  if (start[0] == '\x80') return ReadPtStream(contents);
  if (n == 9 && start[8] == '{' && start.substr(4, 4) == std::string_view("\0\0\0\0", 4))
    return ReadSafetensors(contents);
  for (const std::string_view magic : {std::string_view("PK\x03\x04"), kNpyMagic}) {
    if (magic.starts_with(start))
      return Error(ErrorCode::kTruncated, "ends inside its first bytes").AtOffset(size);
  }
  return Error(ErrorCode::kUnsupported, "no tensor file: neither .pt, .npy, .npz nor safetensors");
}

}  // namespace

struct TensorFile::Rep {
  explicit Rep(Contents c) : contents(std::move(c)) {}

  Contents contents;
  // The deflated member used last.
  std::mutex mutex;
  uint32_t inflated_member = 0;
  std::shared_ptr<const std::string> inflated;

  Result<std::shared_ptr<const std::string>> Inflated(uint32_t member) {
    const std::lock_guard lock(mutex);
    if (inflated == nullptr || inflated_member != member) {
      inflated = nullptr;
      MSPROBE_ASSIGN(std::string data, contents.zip->Read(contents.zip->entries()[member],
                                                          contents.limits.max_bytes));
      inflated = std::make_shared<const std::string>(std::move(data));
      inflated_member = member;
    }
    return inflated;
  }

  bool Swapped(const StoredTensor& tensor) const {
    return tensor.member < contents.swapped.size() && contents.swapped[tensor.member];
  }

  // Calls fn with a reader of the bytes that the tensor's offsets count in.
  Status WithBytes(const StoredTensor& tensor, const std::function<Status(const ReadBytes&)>& fn) {
    if (tensor.stored) {
      return fn([this](uint64_t offset, std::span<std::byte> out) {
        return contents.file.ReadAt(offset, out);
      });
    }
    MSPROBE_ASSIGN(const std::shared_ptr<const std::string> data, Inflated(tensor.member));
    return fn([&](uint64_t offset, std::span<std::byte> out) -> Status {
      if (offset > data->size() || out.size() > data->size() - offset)
        return Error(ErrorCode::kMalformed, "an element beyond its member")
            .At(contents.file.path());
      std::memcpy(out.data(), data->data() + offset, out.size());
      return {};
    });
  }
};

TensorFile::TensorFile() = default;
TensorFile::TensorFile(TensorFile&&) noexcept = default;
TensorFile& TensorFile::operator=(TensorFile&&) noexcept = default;
TensorFile::~TensorFile() = default;

Result<TensorFile> TensorFile::Open(const std::string& path, const Limits& limits) {
  MSPROBE_ASSIGN(InputFile file, InputFile::Open(path));
  TensorFile out;
  out.rep_ = std::make_unique<Rep>(Contents(std::move(file), limits));
  if (auto status = ReadContents(out.rep_->contents); !status.ok()) {
    Error error = std::move(status).error();
    if (error.path.empty()) error.path = path;
    return error;
  }
  return out;
}

const std::vector<StoredTensor>& TensorFile::tensors() const { return rep_->contents.tensors; }
std::string_view TensorFile::format() const { return rep_->contents.format; }
std::string_view TensorFile::holds() const { return rep_->contents.holds; }
const std::string& TensorFile::path() const { return rep_->contents.file.path(); }

Status TensorFile::ReadElements(const StoredTensor& tensor, int64_t first, int64_t count,
                                std::byte* out) const {
  if (!tensor.contiguous || first < 0 || count < 0 || first > tensor.num_elements ||
      count > tensor.num_elements - first) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("elements [{}, {} + {}) of a {} tensor of {}", first, first, count,
                             tensor.contiguous ? "contiguous" : "strided", tensor.num_elements))
        .At(path());
  }
  if (count == 0) return {};
  const size_t item = ItemSize(tensor.dtype);
  const uint64_t offset = tensor.offset + static_cast<uint64_t>(first) * item;
  MSPROBE_TRY(rep_->WithBytes(tensor, [&](const ReadBytes& read) {
    return read(offset, std::span(out, static_cast<size_t>(count) * item));
  }));
  if (rep_->Swapped(tensor)) SwapBytes(tensor.dtype, count, out);
  return {};
}

Status TensorFile::ReadAll(const StoredTensor& tensor, std::byte* out) const {
  if (tensor.contiguous) return ReadElements(tensor, 0, tensor.num_elements, out);
  MSPROBE_TRY(
      rep_->WithBytes(tensor, [&](const ReadBytes& read) { return Gather(tensor, read, out); }));
  if (rep_->Swapped(tensor)) SwapBytes(tensor.dtype, tensor.num_elements, out);
  return {};
}

Result<StoredTensor> SingleTensor(const TensorFile& file) {
  if (!file.holds().empty() || file.tensors().size() != 1) {
    return Error(ErrorCode::kUnsupported, fmt::format("holds {}, not one tensor", file.holds()))
        .At(file.path());
  }
  return file.tensors().front();
}

}  // namespace msprobe::formats
