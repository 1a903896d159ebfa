#include "collect/leaf.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "json/json.h"
#include "metrics/tensor_stats.h"

namespace msprobe::collect {
namespace {

using config::SummaryMode;

void AppendNumber(std::string& out, const metrics::Number& number) {
  switch (number.index()) {
    case 1:
      out += std::get<bool>(number) ? "true" : "false";
      break;
    case 2:
      json::AppendInt(out, std::get<int64_t>(number));
      break;
    case 3:
      fmt::format_to(std::back_inserter(out), "{}", std::get<uint64_t>(number));
      break;
    case 4:
      json::AppendDouble(out, std::get<double>(number));
      break;
    default:
      out += "null";
  }
}

void AppendShape(std::string& out, std::span<const int64_t> shape) {
  out += '[';
  for (size_t k = 0; k < shape.size(); ++k) {
    if (k > 0) out += ", ";
    json::AppendInt(out, shape[k]);
  }
  out += ']';
}

// A scalar's 64-bit word is its value sign-extended, not its bytes (dump.md 13, observed for
// integers and bool).
uint64_t ScalarWord(const metrics::Number& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? 1 : 0;
  if (const int64_t* number = std::get_if<int64_t>(&value)) return static_cast<uint64_t>(*number);
  if (const uint64_t* number = std::get_if<uint64_t>(&value)) return *number;
  return 0;
}

void AppendXor(std::string& out, const TensorView* view) {
  if (view == nullptr || view->num_elements() == 0 || IsFloat8(view->dtype)) {
    out += "null";
    return;
  }
  const bool scalar = view->shape.empty() && !IsComplex(view->dtype);
  if (scalar && IsFloat(view->dtype)) {
    AppendNumber(out, metrics::StatsOf(*view).max);
    return;
  }
  const uint64_t word = scalar ? ScalarWord(metrics::StatsOf(*view).max) : metrics::Xor64Of(*view);
  fmt::format_to(std::back_inserter(out), "\"0x{:016x}\"", word);
}

void AppendChecksum(std::string& out, SummaryMode mode, const TensorView* view) {
  out += ", \"md5\": ";
  if (view == nullptr) {
    out += "null";
  } else if (mode == SummaryMode::kMd5) {
    fmt::format_to(std::back_inserter(out), "\"{:08x}\"", metrics::Crc32Of(*view));
  } else {
    fmt::format_to(std::back_inserter(out), "\"h64:{:016x}\"", metrics::Hash64Of(*view));
  }
}

void AppendStatistics(std::string& out, const metrics::TensorStats& stats) {
  out += ", \"Max\": ";
  AppendNumber(out, stats.max);
  out += ", \"Min\": ";
  AppendNumber(out, stats.min);
  out += ", \"Mean\": ";
  AppendNumber(out, stats.mean);
  out += ", \"Norm\": ";
  AppendNumber(out, stats.norm);
}

void AppendNonFinite(std::string& out, const metrics::TensorStats& stats) {
  if (stats.nan + stats.inf == 0) return;
  fmt::format_to(std::back_inserter(out), ", \"nan\": {}, \"inf\": {}", stats.nan, stats.inf);
  if (stats.finite_max.index() == 0) return;
  out += ", \"finite_max\": ";
  AppendNumber(out, stats.finite_max);
  out += ", \"finite_min\": ";
  AppendNumber(out, stats.finite_min);
}

// Both in one pass. Of a tensor that shows another shape than its memory has (sparse: the stored
// values) a sketch could not be read back.
void AppendFingerprints(std::string& out, const TensorLeaf& leaf, const LeafStyle& style) {
  const bool sketched = style.sketch && NumElements(leaf.shape) == leaf.view->num_elements();
  uint64_t hash = 0;
  std::optional<metrics::Sketch> sketch;
  if (sketched) {
    sketch = metrics::SketchOf(*leaf.view, *style.sketch, style.hash ? &hash : nullptr);
  } else if (style.hash) {
    hash = metrics::Hash64Of(*leaf.view);
  }
  if (style.hash) fmt::format_to(std::back_inserter(out), ", \"hash64\": \"{:016x}\"", hash);
  if (!sketch) return;
  out += ", \"sketch\": ";
  metrics::AppendSketch(out, *sketch);
}

}  // namespace

std::string_view AbsentName(Absent a) {
  switch (a) {
    case Absent::kFiltered:
      return "filtered";
    case Absent::kUnsupported:
      return "unsupported";
    case Absent::kNoStorage:
      return "no_storage";
    case Absent::kInplaceReplaced:
      return "inplace_replaced";
    case Absent::kOutOfBudget:
      return "out_of_budget";
    case Absent::kWriteFailed:
      return "write_failed";
    case Absent::kInternal:
      return "internal";
  }
  return "internal";
}

void AppendAbsent(std::string& out, Absent code, std::string_view reason) {
  out += "{\"code\": \"";
  out += AbsentName(code);
  out += "\", \"reason\": ";
  json::AppendString(out, reason);
  out += '}';
}

NonFinite AppendTensorLeaf(std::string& out, const TensorLeaf& leaf, const LeafStyle& style,
                           const LeafNotes& notes) {
  const bool xor_mode = style.statistics && style.summary == SummaryMode::kXor;
  out += "{\"type\": ";
  json::AppendString(out, leaf.type);
  out += ", \"dtype\": ";
  json::AppendString(out, leaf.dtype_text);
  out += ", \"shape\": ";
  AppendShape(out, leaf.shape);
  metrics::TensorStats stats;
  if (xor_mode) {
    out += ", \"md5\": ";
    AppendXor(out, leaf.view);
  } else {
    if (notes.known != nullptr)
      stats = *notes.known;
    else if (leaf.view != nullptr)
      stats = metrics::StatsOf(*leaf.view);
    if (notes.measured != nullptr) *notes.measured = stats;
    if (notes.gap != nullptr)
      notes.gap->statistics = out.size();
    else if (style.statistics)
      AppendStatistics(out, stats);
  }
  if (leaf.type != "numpy.ndarray") {  // arrays have no such thing (dump.md 11.3)
    out += leaf.requires_grad ? ", \"requires_grad\": true" : ", \"requires_grad\": false";
  }
  if (!leaf.extra_json.empty()) {
    out += ", ";
    out += leaf.extra_json;
  }
  if (!notes.data_name.empty()) {
    out += ", \"data_name\": ";
    json::AppendString(out, notes.data_name);
  }
  if (style.statistics &&
      (style.summary == SummaryMode::kMd5 || style.summary == SummaryMode::kHash64))
    AppendChecksum(out, style.summary, leaf.view);
  if (notes.gap != nullptr) notes.gap->non_finite = out.size();
  AppendNonFinite(out, stats);
  if (leaf.view != nullptr) AppendFingerprints(out, leaf, style);
  if (notes.reused) out += ", \"reused\": true";
  if (!notes.evidence.empty()) {
    out += ", ";
    out += notes.evidence;
  }
  out += '}';
  return {leaf.view != nullptr && !xor_mode, stats.nan + stats.inf > 0};
}

std::string FillGaps(std::string_view text, std::span<const Gap> gaps,
                     std::span<const metrics::TensorStats> statistics) {
  std::string out;
  out.reserve(text.size() + gaps.size() * 96);
  size_t from = 0;
  for (size_t i = 0; i < gaps.size(); ++i) {
    const metrics::TensorStats stats =
        i < statistics.size() ? statistics[i] : metrics::TensorStats{};
    out += text.substr(from, gaps[i].statistics - from);
    AppendStatistics(out, stats);
    out += text.substr(gaps[i].statistics, gaps[i].non_finite - gaps[i].statistics);
    AppendNonFinite(out, stats);
    from = gaps[i].non_finite;
  }
  out += text.substr(from);
  return out;
}

TensorView Sliced(const TensorView& view, std::span<const config::SliceItem> items, Shape& shape,
                  std::vector<int64_t>& strides) {
  shape.assign(view.shape.begin(), view.shape.end());
  if (view.strides.empty())
    strides = ContiguousStrides(view.shape);
  else
    strides.assign(view.strides.begin(), view.strides.end());
  TensorView out = view;
  const auto item_size = static_cast<int64_t>(ItemSize(view.dtype));
  for (const config::SliceItem& item : items) {
    if (item.dim < 0 || static_cast<size_t>(item.dim) >= shape.size()) continue;
    const auto dim = static_cast<size_t>(item.dim);
    const int64_t extent = shape[dim];
    if (item.size.has_value() && *item.size != extent) continue;
    const auto place = [&](int64_t at) {
      return std::clamp<int64_t>(at < 0 ? at + extent : at, 0, extent);
    };
    const int64_t begin = place(item.begin);
    const int64_t end = std::max(begin, place(item.end.value_or(extent)));
    shape[dim] = end - begin;
    if (end > begin && out.data != nullptr) out.data += begin * strides[dim] * item_size;
  }
  out.shape = shape;
  out.strides = strides;
  return out;
}

}  // namespace msprobe::collect
