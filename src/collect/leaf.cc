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

Measured::Measured(const TensorView* view, std::span<const int64_t> shape, const LeafStyle& style,
                   const metrics::TensorStats* known)
    : view_(view), style_(style) {
  if (known != nullptr) statistics_ = *known;
  if (view == nullptr) return;
  metrics::WantedSums wanted;
  wanted.crc32 = style.statistics && style.summary == SummaryMode::kMd5;
  wanted.hash64 = style.hash || (style.statistics && style.summary == SummaryMode::kHash64);
  // Of a tensor that shows another shape than its memory has (sparse: the stored values) a sketch
  // could not be read back.
  if (style.sketch && NumElements(shape) == view->num_elements()) wanted.sketch = style.sketch;
  const bool with_statistics = known == nullptr && !xor_mode();
  if (wanted.any()) {
    Read(wanted, with_statistics);
  } else if (with_statistics) {
    statistics_ = metrics::StatsOf(*view);
  }
}

void Measured::Read(const metrics::WantedSums& wanted, bool with_statistics) {
  metrics::ElementSums sums(view_->dtype, wanted);
  const auto add = [&](const std::byte* data, size_t n) { sums.Add(data, n); };
  if (with_statistics) {
    statistics_ = metrics::StatsOf(*view_, add);
  } else {
    metrics::ForEachPiece(*view_, add);
  }
  crc_ = sums.crc32();
  hash_ = sums.hash64();
  sketch_ = sums.TakeSketch();
}

void Measured::AppendFirst(std::string& out) const {
  if (!style_.statistics) return;
  if (xor_mode()) {
    out += ", \"md5\": ";
    AppendXor(out, view_);
  } else {
    AppendStatistics(out, statistics_);
  }
}

void Measured::AppendLast(std::string& out, std::string_view data_name) const {
  if (!data_name.empty()) {
    out += ", \"data_name\": ";
    json::AppendString(out, data_name);
  }
  const bool md5 = style_.summary == SummaryMode::kMd5;
  if (style_.statistics && (md5 || style_.summary == SummaryMode::kHash64)) {
    out += ", \"md5\": ";
    if (view_ == nullptr) {
      out += "null";
    } else if (md5) {
      fmt::format_to(std::back_inserter(out), "\"{:08x}\"", crc_);
    } else {
      fmt::format_to(std::back_inserter(out), "\"h64:{:016x}\"", hash_);
    }
  }
  AppendNonFinite(out, statistics_);
  if (view_ != nullptr && style_.hash)
    fmt::format_to(std::back_inserter(out), ", \"hash64\": \"{:016x}\"", hash_);
  if (!sketch_) return;
  out += ", \"sketch\": ";
  metrics::AppendSketch(out, *sketch_);
}

NonFinite Measured::non_finite() const {
  return {view_ != nullptr && !xor_mode(), statistics_.nan + statistics_.inf > 0};
}

namespace {

void AppendHead(std::string& out, const TensorLeaf& leaf) {
  out += "{\"type\": ";
  json::AppendString(out, leaf.type);
  out += ", \"dtype\": ";
  json::AppendString(out, leaf.dtype_text);
  out += ", \"shape\": ";
  AppendShape(out, leaf.shape);
}

void AppendMiddle(std::string& out, const TensorLeaf& leaf) {
  if (leaf.type != "numpy.ndarray") {  // arrays have no such thing (dump.md 11.3)
    out += leaf.requires_grad ? ", \"requires_grad\": true" : ", \"requires_grad\": false";
  }
  if (leaf.extra_json.empty()) return;
  out += ", ";
  out += leaf.extra_json;
}

void AppendEnd(std::string& out, const LeafNotes& notes) {
  if (notes.reused) out += ", \"reused\": true";
  if (!notes.evidence.empty()) {
    out += ", ";
    out += notes.evidence;
  }
  out += '}';
}

}  // namespace

NonFinite AppendTensorLeaf(std::string& out, const TensorLeaf& leaf, const LeafStyle& style,
                           const LeafNotes& notes) {
  AppendHead(out, leaf);
  if (notes.gap != nullptr) {
    notes.gap->first = out.size();
    AppendMiddle(out, leaf);
    notes.gap->last = out.size();
    AppendEnd(out, notes);
    return {};
  }
  const Measured measured(leaf.view, leaf.shape, style, notes.known);
  if (notes.measured != nullptr) *notes.measured = measured.statistics();
  measured.AppendFirst(out);
  AppendMiddle(out, leaf);
  measured.AppendLast(out, notes.data_name);
  AppendEnd(out, notes);
  return measured.non_finite();
}

std::string FillGaps(std::string_view text, std::span<const Gap> gaps,
                     std::span<const GapTexts> texts) {
  std::string out;
  out.reserve(text.size() + gaps.size() * 96);
  size_t from = 0;
  for (size_t i = 0; i < gaps.size(); ++i) {
    out += text.substr(from, gaps[i].first - from);
    out += texts[i].first;
    out += text.substr(gaps[i].first, gaps[i].last - gaps[i].first);
    out += texts[i].last;
    from = gaps[i].last;
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
