// A strided read-only view of tensor elements that somebody else owns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "tensor/dtype.h"

namespace msprobe {

using Shape = std::vector<int64_t>;

// Product of `shape` (1 for rank 0); nullopt for a negative extent or overflow of int64.
std::optional<int64_t> NumElements(std::span<const int64_t> shape);
// Python's text of a list of ints: "[2, 3]", "[]".
std::string ShapeText(std::span<const int64_t> shape);
// Row-major strides in elements.
std::vector<int64_t> ContiguousStrides(std::span<const int64_t> shape);

// `data` points at element (0, …, 0); strides are in elements and may be 0 or negative. The memory
// outlives the view.
struct TensorView {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  std::span<const int64_t> shape;
  std::span<const int64_t> strides;  // same rank as shape; empty means contiguous

  int64_t num_elements() const { return NumElements(shape).value_or(0); }
  bool IsContiguous() const;  // row-major, no gaps (extents of 1 do not matter)
  // The elements fill one block without gaps or repetition, in whatever order of dimensions:
  // order-free reductions may read [data, data + n * item size) in one go.
  bool IsDense() const;
};

// Calls fn(pointer, count, stride) for inner runs that cover the view in row-major order: `count`
// elements, `stride` apart (in elements; 1 where possible). A contiguous view is one run. Used by
// kernels that must see strided memory without copies.
void ForEachRun(
    const TensorView& view,
    const std::function<void(const std::byte* data, int64_t count, int64_t stride)>& fn);

// Calls fn(data, count) for contiguous blocks of elements that together are the view in row-major
// order. Contiguous stretches are passed where they lie; the rest goes through a small buffer on
// the stack. A contiguous view is one block, an empty view none.
void ForEachBlock(const TensorView& view,
                  const std::function<void(const std::byte* data, size_t count)>& fn);

// Reads a view's elements in row-major order, some at a time.
class ElementCursor {
 public:
  explicit ElementCursor(const TensorView& view);
  // Copies the next n elements to `out`; n is at most the number left.
  void Next(size_t n, std::byte* out);

 private:
  std::vector<int64_t> extents_, strides_,
      index_;             // collapsed dimensions, outermost first; the last is the run
  const std::byte* run_;  // first element of the current run
  size_t item_;
};

// The elements in row-major order. `out` has num_elements * ItemSize bytes.
void CopyContiguous(const TensorView& view, std::byte* out);

// Shape without the extents of 1.
Shape Squeezed(std::span<const int64_t> shape);

}  // namespace msprobe
