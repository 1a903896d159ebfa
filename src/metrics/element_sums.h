// Checksums and sketch of elements that arrive in pieces, in row-major order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "metrics/sketch.h"
#include "tensor/dtype.h"

namespace msprobe::metrics {

struct WantedSums {
  bool crc32 = false, hash64 = false;
  std::optional<SketchSetting> sketch = {};
  bool any() const { return crc32 || hash64 || sketch.has_value(); }
};

class ElementSums {
 public:
  ElementSums(DType dtype, const WantedSums& wanted);
  void Add(const std::byte* data, size_t n);
  // Of what was added so far, as Crc32Of, Hash64Of and SketchOf give them; 0 and none when it was
  // not wanted.
  uint32_t crc32() const { return crc32_; }
  uint64_t hash64() const { return hash64_; }
  std::optional<Sketch> TakeSketch();

 private:
  DType dtype_;
  WantedSums wanted_;
  uint32_t crc32_ = 0;
  uint64_t hash64_ = 0, count_ = 0;
  std::optional<SketchSums> sketch_;
};

}  // namespace msprobe::metrics
