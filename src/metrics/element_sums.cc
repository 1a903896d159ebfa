#include "metrics/element_sums.h"

#include <utility>

#include "kernels/checksum.h"

namespace msprobe::metrics {

ElementSums::ElementSums(DType dtype, const WantedSums& wanted) : dtype_(dtype), wanted_(wanted) {
  if (wanted.sketch) sketch_.emplace(dtype, *wanted.sketch);
}

void ElementSums::Add(const std::byte* data, size_t n) {
  const size_t item = ItemSize(dtype_);
  if (wanted_.crc32) crc32_ = kernels::Crc32(crc32_, data, n * item);
  if (wanted_.hash64) hash64_ += kernels::Hash64(data, n, item, count_);
  if (sketch_) sketch_->Add(data, n, count_);
  count_ += n;
}

std::optional<Sketch> ElementSums::TakeSketch() {
  if (!sketch_) return std::nullopt;
  const auto n = static_cast<int64_t>(count_);
  return std::move(*sketch_).Finish(n, n);
}

}  // namespace msprobe::metrics
