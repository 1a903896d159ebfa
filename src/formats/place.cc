#include <fmt/format.h>

#include <algorithm>

#include "base/checked.h"
#include "base/text.h"
#include "formats/contents.h"

namespace msprobe::formats {
namespace {

bool IsRowMajor(const StoredTensor& tensor) {
  int64_t expected = 1;
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] == 1) continue;
    if (tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

// Index of the last element in storage order; nullopt on overflow.
std::optional<int64_t> LastIndex(const StoredTensor& tensor) {
  std::optional<int64_t> last = 0;
  for (size_t i = 0; i < tensor.shape.size() && last; ++i) {
    const auto reach = CheckedMul(tensor.shape[i] - 1, tensor.strides[i]);
    last = reach ? CheckedAdd(*last, *reach) : std::nullopt;
  }
  return last;
}

}  // namespace

std::vector<int64_t> TorchStrides(std::span<const int64_t> shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(shape[i], 1);
  }
  return strides;
}

Status PlaceTensor(const Region& region, int64_t first, const Limits& limits,
                   StoredTensor& tensor) {
  const auto fail = [&](ErrorCode code, std::string_view message) -> Status {
    return Error(code, tensor.name.empty()
                           ? std::string(message)
                           : fmt::format("tensor {}: {}", VisibleText(tensor.name), message));
  };
  if (tensor.shape.size() > static_cast<size_t>(std::max(limits.max_rank, 0)))
    return fail(ErrorCode::kTooLarge, fmt::format("{} dimensions; the limit is {}",
                                                  tensor.shape.size(), limits.max_rank));
  const auto n = NumElements(tensor.shape);
  const auto item = static_cast<int64_t>(ItemSize(tensor.dtype));
  const auto bytes = n ? CheckedMul(*n, item) : std::nullopt;
  if (!bytes)
    return fail(ErrorCode::kMalformed,
                fmt::format("shape {} is impossible", ShapeText(tensor.shape)));
  if (static_cast<uint64_t>(*bytes) > limits.max_bytes)
    return fail(ErrorCode::kTooLarge,
                fmt::format("{} bytes of elements; the limit is {}", *bytes, limits.max_bytes));
  // Extents of 0 beside large ones must not overflow the strides either.
  int64_t product = 1;
  for (const int64_t extent : tensor.shape) {
    const auto next = CheckedMul(product, std::max<int64_t>(extent, 1));
    if (!next)
      return fail(ErrorCode::kMalformed,
                  fmt::format("shape {} is impossible", ShapeText(tensor.shape)));
    product = *next;
  }
  if (tensor.strides.empty()) tensor.strides = TorchStrides(tensor.shape);
  tensor.num_elements = *n;
  tensor.stored = region.stored;
  tensor.member = region.member;
  tensor.offset = region.offset;
  tensor.contiguous = *n <= 1 || IsRowMajor(tensor);
  tensor.span_bytes = 0;
  if (*n == 0) return {};
  const auto last = LastIndex(tensor);
  const auto end = last ? CheckedAdd(*last, first) : std::nullopt;
  const auto end_bytes = end ? CheckedAdd(*end, int64_t{1}) : std::nullopt;
  if (!end_bytes || *end_bytes > static_cast<int64_t>(region.bytes / static_cast<uint64_t>(item))) {
    return fail(
        ErrorCode::kMalformed,
        fmt::format("shape {}, strides {} and offset {} reach beyond the {} bytes of its storage",
                    ShapeText(tensor.shape), ShapeText(tensor.strides), first, region.bytes));
  }
  tensor.offset += static_cast<uint64_t>(first * item);
  tensor.span_bytes = static_cast<uint64_t>((*last + 1) * item);
  return {};
}

}  // namespace msprobe::formats
