#include "formats/gather.h"

#include <algorithm>
#include <cstring>

#include "formats/contents.h"

namespace msprobe::formats {
namespace {

constexpr uint64_t kWindow = 1u << 20;
constexpr int64_t kPage = 4096;

struct Dim {
  int64_t extent;
  int64_t from;  // bytes between neighbours in the file
  int64_t to;    // bytes between neighbours in `out`
};

// Dimensions with more than one element, widest stride of the file first.
std::vector<Dim> FileOrder(const StoredTensor& tensor) {
  const auto item = static_cast<int64_t>(ItemSize(tensor.dtype));
  const std::vector<int64_t> row_major = TorchStrides(tensor.shape);
  std::vector<Dim> dims;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.shape[i] > 1)
      dims.push_back({tensor.shape[i], tensor.strides[i] * item, row_major[i] * item});
  }
  std::stable_sort(dims.begin(), dims.end(),
                   [](const Dim& a, const Dim& b) { return a.from > b.from; });
  return dims;
}

// Bytes worth reading at once: as far as the inner dimensions leave no large holes.
uint64_t WindowSize(const std::vector<Dim>& dims, int64_t item) {
  int64_t reach = item;
  for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim) {
    if (dim->from > std::max(4 * reach, kPage)) break;
    reach += (dim->extent - 1) * dim->from;
    if (reach >= static_cast<int64_t>(kWindow)) return kWindow;
  }
  return static_cast<uint64_t>(reach);
}

class Window {
 public:
  Window(const ReadBytes& read, uint64_t begin, uint64_t end, uint64_t size)
      : read_(read), end_(end), buffer_(static_cast<size_t>(size)), begin_(begin) {}

  // `n` bytes at `offset`; nullptr after an error. At most the size of the window, and before the
  // end.
  const std::byte* At(uint64_t offset, uint64_t n) {
    if (offset < begin_ || offset + n > begin_ + filled_) {
      begin_ = offset;
      filled_ = std::min<uint64_t>(buffer_.size(), end_ - offset);
      status_ = read_(offset, std::span(buffer_).first(static_cast<size_t>(filled_)));
      if (!status_.ok()) return nullptr;
    }
    return buffer_.data() + (offset - begin_);
  }
  Status& status() { return status_; }

 private:
  const ReadBytes& read_;
  uint64_t end_;
  std::vector<std::byte> buffer_;
  uint64_t begin_;
  uint64_t filled_ = 0;
  Status status_;
};

// One run along the innermost dimension of the file.
template <size_t kItem>
bool CopyRun(Window& window, uint64_t from, std::byte* to, const Dim& dim) {
  for (int64_t i = 0; i < dim.extent; ++i) {
    const std::byte* const p = window.At(from, kItem);
    if (p == nullptr) return false;
    std::memcpy(to, p, kItem);
    from += static_cast<uint64_t>(dim.from);
    to += dim.to;
  }
  return true;
}

template <size_t kItem>
Status GatherItems(const StoredTensor& tensor, const ReadBytes& read, std::byte* out) {
  std::vector<Dim> dims = FileOrder(tensor);
  Window window(read, tensor.offset, tensor.offset + tensor.span_bytes, WindowSize(dims, kItem));
  const Dim inner = dims.empty() ? Dim{1, 0, 0} : dims.back();
  if (!dims.empty()) dims.pop_back();
  std::vector<int64_t> index(dims.size(), 0);
  uint64_t from = tensor.offset;
  std::byte* to = out;
  for (;;) {
    if (!CopyRun<kItem>(window, from, to, inner)) return std::move(window.status());
    size_t d = dims.size();
    while (d > 0) {
      const Dim& dim = dims[d - 1];
      from += static_cast<uint64_t>(dim.from);
      to += dim.to;
      if (++index[d - 1] < dim.extent) break;
      from -= static_cast<uint64_t>(dim.from * dim.extent);
      to -= dim.to * dim.extent;
      index[--d] = 0;
    }
    if (d == 0) return {};
  }
}

template <size_t kItem>
void SwapItems(int64_t n, std::byte* data) {
  for (int64_t i = 0; i < n; ++i, data += kItem) std::reverse(data, data + kItem);
}

}  // namespace

Status Gather(const StoredTensor& tensor, const ReadBytes& read, std::byte* out) {
  if (tensor.num_elements == 0) return {};
  switch (ItemSize(tensor.dtype)) {
    case 1:
      return GatherItems<1>(tensor, read, out);
    case 2:
      return GatherItems<2>(tensor, read, out);
    case 4:
      return GatherItems<4>(tensor, read, out);
    case 8:
      return GatherItems<8>(tensor, read, out);
    default:
      return GatherItems<16>(tensor, read, out);
  }
}

void SwapBytes(DType dtype, int64_t n, std::byte* data) {
  if (IsComplex(dtype)) n *= 2;
  switch (ItemSize(RealOf(dtype))) {
    case 2:
      return SwapItems<2>(n, data);
    case 4:
      return SwapItems<4>(n, data);
    case 8:
      return SwapItems<8>(n, data);
    default:
      return;
  }
}

}  // namespace msprobe::formats
