#include "tensor/view.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#include "base/checked.h"

namespace msprobe {
namespace {

struct Dim {
  int64_t extent;
  int64_t stride;  // in elements
};

// The view's dimensions, outermost first, without extents of 1 and with neighbours merged where the
// outer one steps over exactly the inner one's block. Rank 0 and one-element views give an empty
// list.
std::vector<Dim> CollapsedDims(const TensorView& view) {
  std::vector<int64_t> own;
  std::span<const int64_t> strides = view.strides;
  if (strides.empty()) {
    own = ContiguousStrides(view.shape);
    strides = own;
  }
  assert(strides.size() == view.shape.size());
  std::vector<Dim> dims;
  for (size_t i = 0; i < view.shape.size(); ++i) {
    const Dim d{view.shape[i], strides[i]};
    if (d.extent == 1) continue;
    if (!dims.empty() && CheckedMul(d.stride, d.extent) == dims.back().stride) {
      dims.back() = {dims.back().extent * d.extent, d.stride};
    } else {
      dims.push_back(d);
    }
  }
  return dims;
}

// Copies `count` elements, `stride` bytes apart, with a constant item size the compiler turns into
// one load and store.
template <size_t kItem>
void GatherItems(const std::byte* src, int64_t stride_bytes, int64_t count, std::byte* out) {
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(out, src, kItem);
    src += stride_bytes;
    out += kItem;
  }
}

void Gather(const std::byte* src, int64_t stride, int64_t count, size_t item, std::byte* out) {
  if (stride == 1) {
    std::memcpy(out, src, static_cast<size_t>(count) * item);
    return;
  }
  const int64_t bytes = stride * static_cast<int64_t>(item);
  switch (item) {
    case 1:
      return GatherItems<1>(src, bytes, count, out);
    case 2:
      return GatherItems<2>(src, bytes, count, out);
    case 4:
      return GatherItems<4>(src, bytes, count, out);
    case 8:
      return GatherItems<8>(src, bytes, count, out);
    default:
      return GatherItems<16>(src, bytes, count, out);
  }
}

// The runs of ForEachRun as a template, so that the block iteration below has no call per run.
template <class F>
void VisitRuns(const TensorView& view, const F& fn) {
  const std::optional<int64_t> n = NumElements(view.shape);
  if (!n || *n == 0) return;
  const std::vector<Dim> dims = CollapsedDims(view);
  if (dims.empty()) return fn(view.data, 1, 1);
  const auto item = static_cast<int64_t>(ItemSize(view.dtype));
  const Dim inner = dims.back();
  const size_t outer = dims.size() - 1;
  std::vector<int64_t> index(outer, 0);
  const std::byte* p = view.data;
  for (;;) {
    fn(p, inner.extent, inner.stride);
    size_t d = outer;
    while (d > 0) {
      --d;
      p += dims[d].stride * item;
      if (++index[d] < dims[d].extent) break;
      p -= dims[d].extent * dims[d].stride * item;
      index[d] = 0;
      if (d == 0) return;
    }
    if (outer == 0) return;
  }
}

}  // namespace

std::optional<int64_t> NumElements(std::span<const int64_t> shape) {
  // A zero extent makes the product 0 even when the others alone would overflow.
  bool zero = false;
  for (const int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    zero = zero || extent == 0;
  }
  if (zero) return 0;
  int64_t n = 1;
  for (const int64_t extent : shape) {
    const std::optional<int64_t> product = CheckedMul(n, extent);
    if (!product) return std::nullopt;
    n = *product;
  }
  return n;
}

std::string ShapeText(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

std::vector<int64_t> ContiguousStrides(std::span<const int64_t> shape) {
  std::vector<int64_t> strides(shape.size());
  // Unsigned, so that the strides of a shape with a zero extent and huge others wrap instead of
  // overflowing; they are never followed. torch counts an extent of 0 as 1 here.
  uint64_t step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = static_cast<int64_t>(step);
    step *= static_cast<uint64_t>(std::max<int64_t>(shape[i], 1));
  }
  return strides;
}

bool TensorView::IsContiguous() const {
  if (strides.empty() || num_elements() == 0) return true;
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 1) continue;
    if (strides[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

bool TensorView::IsDense() const {
  if (strides.empty() || num_elements() == 0) return true;
  std::vector<Dim> dims;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != 1) dims.push_back({shape[i], strides[i]});
  }
  std::sort(dims.begin(), dims.end(),
            [](const Dim& a, const Dim& b) { return a.stride < b.stride; });
  int64_t step = 1;
  for (const Dim& d : dims) {
    if (d.stride != step)
      return false;  // negative strides too: `data` would not be the block's start
    step *= d.extent;
  }
  return true;
}

void ForEachRun(
    const TensorView& view,
    const std::function<void(const std::byte* data, int64_t count, int64_t stride)>& fn) {
  VisitRuns(view, fn);
}

void ForEachBlock(const TensorView& view,
                  const std::function<void(const std::byte* data, size_t count)>& fn) {
  constexpr size_t kBufferBytes = 8192;
  alignas(64) std::array<std::byte, kBufferBytes> buffer;
  const size_t item = ItemSize(view.dtype);
  const size_t capacity = kBufferBytes / item;
  size_t held = 0;
  const auto flush = [&] {
    if (held > 0) fn(buffer.data(), held);
    held = 0;
  };
  VisitRuns(view, [&](const std::byte* data, int64_t count, int64_t stride) {
    if (stride == 1 && static_cast<size_t>(count) >= capacity) {
      flush();
      fn(data, static_cast<size_t>(count));
      return;
    }
    while (count > 0) {
      const int64_t part = std::min(count, static_cast<int64_t>(capacity - held));
      Gather(data, stride, part, item, buffer.data() + held * item);
      held += static_cast<size_t>(part);
      data += part * stride * static_cast<int64_t>(item);
      count -= part;
      if (held == capacity) flush();
    }
  });
  flush();
}

ElementCursor::ElementCursor(const TensorView& view)
    : run_(view.data), item_(ItemSize(view.dtype)) {
  for (const Dim& d : CollapsedDims(view)) {
    extents_.push_back(d.extent);
    strides_.push_back(d.stride);
  }
  if (extents_.empty()) {
    extents_.push_back(1);
    strides_.push_back(1);
  }
  index_.assign(extents_.size(), 0);
}

void ElementCursor::Next(size_t n, std::byte* out) {
  const size_t last = extents_.size() - 1;
  const auto item = static_cast<int64_t>(item_);
  while (n > 0) {
    const int64_t part = std::min(static_cast<int64_t>(n), extents_[last] - index_[last]);
    const std::byte* p = run_ + index_[last] * strides_[last] * item;
    const size_t bytes = static_cast<size_t>(part) * item_;
    if (strides_[last] == 1) {
      std::memcpy(out, p, bytes);
    } else {
      Gather(p, strides_[last], part, item_, out);
    }
    out += bytes;
    n -= static_cast<size_t>(part);
    index_[last] += part;
    for (size_t d = last; d > 0 && index_[d] == extents_[d]; --d) {
      index_[d] = 0;
      ++index_[d - 1];
      run_ += strides_[d - 1] * item;
      if (index_[d - 1] == extents_[d - 1]) run_ -= extents_[d - 1] * strides_[d - 1] * item;
    }
  }
}

void CopyContiguous(const TensorView& view, std::byte* out) {
  const size_t item = ItemSize(view.dtype);
  VisitRuns(view, [&](const std::byte* data, int64_t count, int64_t stride) {
    if (stride == 1) {
      std::memcpy(out, data, static_cast<size_t>(count) * item);
    } else {
      Gather(data, stride, count, item, out);
    }
    out += static_cast<size_t>(count) * item;
  });
}

Shape Squeezed(std::span<const int64_t> shape) {
  Shape out;
  for (const int64_t extent : shape) {
    if (extent != 1) out.push_back(extent);
  }
  return out;
}

}  // namespace msprobe
