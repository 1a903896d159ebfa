// The JSON text of tensor leaves (dump.md 11.3), and which part of a tensor is looked at.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collect/collector.h"
#include "config/collect_config.h"
#include "metrics/element_sums.h"
#include "metrics/tensor_stats.h"
#include "tensor/view.h"

namespace msprobe::collect {

// {"code": …, "reason": …} of decisions.md 18.
void AppendAbsent(std::string& out, Absent code, std::string_view reason);

struct LeafStyle {
  config::SummaryMode summary = config::SummaryMode::kStatistics;
  bool statistics = true;  // false (nan_check): neither statistics nor checksum
  bool hash = false;       // "hash64" beside them (evidence full, sketch)
  std::optional<metrics::SketchSetting> sketch = {};
};

// What a tensor leaf says about non-finite elements; `known` is false when its memory could not be
// looked at.
struct NonFinite {
  bool known = false;
  bool any = false;
};

// What a leaf says of the elements: statistics, checksum, counts of what is not finite, hash and
// sketch. Each page of contiguous memory is fetched once for all of them.
class Measured {
 public:
  // `view` null: memory that nobody can read. `shape`: the one that the leaf shows. `known`:
  // measured before, not to be measured again.
  Measured(const TensorView* view, std::span<const int64_t> shape, const LeafStyle& style,
           const metrics::TensorStats* known);
  // The members between "shape" and "requires_grad".
  void AppendFirst(std::string& out) const;
  // Those that follow the further members of the leaf. `data_name` empty: no file was written.
  void AppendLast(std::string& out, std::string_view data_name) const;
  const metrics::TensorStats& statistics() const { return statistics_; }
  NonFinite non_finite() const;

 private:
  void Read(const metrics::WantedSums& wanted, bool with_statistics);
  bool xor_mode() const { return style_.statistics && style_.summary == config::SummaryMode::kXor; }

  const TensorView* view_;
  const LeafStyle& style_;
  metrics::TensorStats statistics_;
  uint32_t crc_ = 0;
  uint64_t hash_ = 0;
  std::optional<metrics::Sketch> sketch_;
};

// A leaf whose elements arrive later: places in a text where their two texts belong.
struct Gap {
  size_t first = 0, last = 0;
};
struct GapTexts {
  std::string first, last;
};
// `text` with the gaps, in ascending order, filled; as many texts as gaps.
std::string FillGaps(std::string_view text, std::span<const Gap> gaps,
                     std::span<const GapTexts> texts);

// What is known of a leaf beside the tensor itself.
struct LeafNotes {
  std::string_view data_name;                   // empty: no file was written
  std::string_view evidence;                    // further members, at the very end, or empty
  const metrics::TensorStats* known = nullptr;  // measured before: not measured again
  bool reused = false;                          // `known` are those of another leaf
  // Out, when not null: what depends on elements is left out, and this is where it belongs.
  Gap* gap = nullptr;
  metrics::TensorStats* measured = nullptr;  // out
};

// Appends the leaf. Keys and their order: dump.md 11.3; after them "nan", "inf", "finite_max",
// "finite_min" when there are non-finite elements (the latter two only when something is finite),
// "hash64", "sketch", and the evidence.
NonFinite AppendTensorLeaf(std::string& out, const TensorLeaf& leaf, const LeafStyle& style,
                           const LeafNotes& notes);

// `view` restricted by the `slice` items of the configuration (dump.md 9.5). The result's spans
// point into `shape` and `strides`.
TensorView Sliced(const TensorView& view, std::span<const config::SliceItem> items, Shape& shape,
                  std::vector<int64_t>& strides);

}  // namespace msprobe::collect
