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
#include "metrics/sketch.h"
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

// A leaf whose statistics arrive later: places in a text.
struct Gap {
  size_t statistics = 0, non_finite = 0;
};
// `text` with the statistics of each gap put in; gaps in ascending order. Missing ones are nulls.
std::string FillGaps(std::string_view text, std::span<const Gap> gaps,
                     std::span<const metrics::TensorStats> statistics);

// What is known of a leaf beside the tensor itself.
struct LeafNotes {
  std::string_view data_name;                   // empty: no file was written
  std::string_view evidence;                    // further members, at the very end, or empty
  const metrics::TensorStats* known = nullptr;  // measured before: not measured again
  bool reused = false;                          // `known` are those of another leaf
  // Out, when not null: the statistics are left out, and these are the places in `out` where their
  // texts belong (FillGaps).
  struct Gap* gap = nullptr;
  metrics::TensorStats* measured = nullptr;  // out
};

// Appends the leaf. Keys and their order:
// dump.md 11.3; after them "nan", "inf", "finite_max", "finite_min" when there are non-finite
// elements (the latter two only when something is finite), "hash64", "sketch", and the evidence.
NonFinite AppendTensorLeaf(std::string& out, const TensorLeaf& leaf, const LeafStyle& style,
                           const LeafNotes& notes);

// `view` restricted by the `slice` items of the configuration (dump.md 9.5). The result's spans
// point into `shape` and `strides`.
TensorView Sliced(const TensorView& view, std::span<const config::SliceItem> items, Shape& shape,
                  std::vector<int64_t>& strides);

}  // namespace msprobe::collect
