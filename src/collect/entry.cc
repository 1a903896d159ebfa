#include "collect/entry.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "collect/origins.h"
#include "collect/tensor_store.h"
#include "json/json.h"

namespace msprobe::collect {
namespace {

constexpr size_t kDeepest = 400;

void Fill(GapTexts& texts, const Measured& measured, std::string_view data_name) {
  texts = {};
  measured.AppendFirst(texts.first);
  measured.AppendLast(texts.last, data_name);
}

struct PartNames {
  std::string_view key, kind;
};
PartNames NamesOf(Part part) {
  switch (part) {
    case Part::kInputArgs:
      return {"input_args", "input"};
    case Part::kInputKwargs:
      return {"input_kwargs", "kwargs"};
    case Part::kInput:
      return {"input", "input"};
    case Part::kOutput:
      return {"output", "output"};
    case Part::kParameters:
      return {"parameters", "parameters"};
    case Part::kMutated:
      return {"mutated", "mutated"};
    case Part::kWhole:
      return {"", ""};
  }
  return {"", ""};
}

}  // namespace

void EntryMemory::Clear() {
  name.clear();
  text.clear();
  path.clear();
  keys.clear();
  absent.clear();
  extra.clear();
  frames.clear();
}

Entry::Entry(EntryOwner& owner, EntryMemory memory, const EntryTag& tag, const EntryStyle& style)
    : owner_(owner), memory_(std::move(memory)), tag_(tag), style_(style) {
  memory_.text += '{';
}

Entry::~Entry() { Discard(); }

EntryMemory Entry::TakeMemory() {
  EntryMemory memory = std::move(memory_);
  memory.Clear();
  return memory;
}

// ---- parts
// -----------------------------------------------------------------------------------------

void Entry::BeginFragment(std::string_view path) {
  fragment_ = in_part_ = true;
  memory_.text.clear();
  memory_.path = path;
}

void Entry::BeginPart(Part part) {
  if (done_ || fragment_) return;
  EndPart();
  in_part_ = true;
  root_filled_ = false;
  output_part_ = part == Part::kOutput;
  produces_ = part == Part::kOutput || part == Part::kMutated;
  const bool output_side = produces_ || part == Part::kParameters;
  skipping_ = part != Part::kWhole && !(output_side ? style_.output : style_.input);
  if (skipping_) return;
  const PartNames names = NamesOf(part);
  if (parts_++ > 0) memory_.text += ", ";
  if (part == Part::kWhole) {
    whole_ = true;
    memory_.text.clear();  // the entry is one bare value
  } else {
    memory_.text += '"';
    memory_.text += names.key;
    memory_.text += "\": ";
  }
  memory_.path = names.kind;
  memory_.keys.clear();
}

void Entry::EndPart() {
  if (!in_part_ || fragment_) return;
  in_part_ = false;
  dropped_depth_ = 0;
  if (!skipping_) {
    while (!memory_.frames.empty()) Close(memory_.frames.back().object);
    if (!root_filled_) memory_.text += "null";
  }
  skipping_ = false;
}

// ---- positions
// -------------------------------------------------------------------------------------

void Entry::CompleteKey() {
  EntryMemory::Frame& frame = memory_.frames.back();
  if (!frame.after_key) return;
  memory_.text += "null";
  frame.after_key = false;
}

void Entry::Key(std::string_view key) {
  if (skipping_ || dropped_depth_ > 0 || memory_.frames.empty() || !memory_.frames.back().object)
    return;
  CompleteKey();
  EntryMemory::Frame& frame = memory_.frames.back();
  if (frame.values++ > 0) memory_.text += ", ";
  json::AppendString(memory_.text, key);
  memory_.text += ": ";
  memory_.keys.resize(frame.key_begin);
  memory_.keys += key;
  frame.after_key = true;
}

bool Entry::Place() {
  if (!in_part_ || skipping_ || done_ || dropped_depth_ > 0) return false;
  if (memory_.frames.empty()) {
    if (root_filled_) return false;
    root_filled_ = true;
    return true;
  }
  EntryMemory::Frame& frame = memory_.frames.back();
  if (frame.object) {
    if (!frame.after_key) return false;  // a value without a key
    frame.after_key = false;
    return true;
  }
  if (frame.values++ > 0) memory_.text += ", ";
  return true;
}

void Entry::AppendPosition() {
  if (memory_.frames.empty()) return;
  const EntryMemory::Frame& frame = memory_.frames.back();
  if (fragment_ && memory_.frames.size() == 1) return;  // the list around a gradient adds nothing
  if (!memory_.path.empty()) memory_.path += '.';
  if (frame.object)
    memory_.path += std::string_view(memory_.keys).substr(frame.key_begin);
  else
    memory_.path += fmt::format_int(frame.values - 1).c_str();
}

std::string Entry::LeafPath() {
  const size_t size = memory_.path.size();
  AppendPosition();
  std::string path = memory_.path;
  memory_.path.resize(size);
  return path;
}

void Entry::Open(bool object) {
  if (memory_.frames.size() >= kDeepest) {
    if (dropped_depth_ == 0) AbsentLeaf(Absent::kUnsupported, "nested deeper than 400 levels");
    ++dropped_depth_;
    return;
  }
  if (!Place()) {
    if (in_part_ && !skipping_) ++dropped_depth_;
    return;
  }
  const size_t path_size = memory_.path.size();
  AppendPosition();
  memory_.text += object ? '{' : '[';
  memory_.frames.push_back({object, false, 0, path_size, memory_.keys.size()});
}

void Entry::Close(bool object) {
  if (dropped_depth_ > 0) {
    --dropped_depth_;
    return;
  }
  if (memory_.frames.empty() || memory_.frames.back().object != object) return;
  if (object) CompleteKey();
  const EntryMemory::Frame frame = memory_.frames.back();
  memory_.text += object ? '}' : ']';
  memory_.path.resize(frame.path_size);
  memory_.keys.resize(frame.key_begin);
  memory_.frames.pop_back();
}

// ---- leaves
// ----------------------------------------------------------------------------------------

void Entry::NoteAbsent(std::string_view path, Absent code, std::string_view reason) {
  if (code == Absent::kInternal || code == Absent::kWriteFailed) ++failed_leaves_;
  std::string& absent = memory_.absent;
  if (!absent.empty()) absent += ", ";
  json::AppendString(absent, path);
  absent += ": ";
  AppendAbsent(absent, code, reason);
}

// `path` of the leaf; its file name, or empty.
std::string Entry::SaveTensor(const TensorView& view, std::string path) {
  std::string stem = memory_.name;
  if (!path.empty()) stem.append(1, '.').append(path);
  if (style_.background || style_.hold) return SaveLater(std::move(stem), std::move(path), view);
  auto saved = style_.tensors->Save(stem, view);
  if (saved.ok()) return std::move(saved).value();
  NoteAbsent(path, Absent::kWriteFailed, saved.error().ToString());
  return {};
}

std::string Entry::SaveLater(std::string stem, std::string path, const TensorView& view) {
  auto name = style_.tensors->Name(stem);
  if (!name.ok()) {
    if (!style_.hold) NoteAbsent(path, Absent::kWriteFailed, name.error().ToString());
    return {};
  }
  EntryFile file{0, *name, std::move(path), {}};
  try {
    file.copy = style_.tensors->Copy(view);
  } catch (const std::bad_alloc&) {
    NoteAbsent(file.path, Absent::kOutOfBudget, "no memory for a copy of the tensor");
    return {};
  }
  if (!style_.hold) file.ticket = style_.tensors->QueueCopy(file.name, std::move(file.copy));
  files_.push_back(std::move(file));
  return std::move(name).value();
}

void Entry::SettleHeldFiles() {
  if (files_.empty()) return;
  if (owner_.WantsHeldFiles(*this)) {
    for (EntryFile& file : files_)
      file.ticket = style_.tensors->QueueCopy(file.name, std::move(file.copy));
    return;
  }
  for (EntryFile& file : files_) style_.tensors->Recycle(std::move(file.copy));
  files_.clear();
  const size_t before = memory_.text.size();
  memory_.text = WithoutFileNames(memory_.text, [](std::string_view) { return false; });
  body_size_ -= before - memory_.text.size();
}

std::string WithoutFileNames(std::string_view text,
                             const std::function<bool(std::string_view name)>& keep) {
  constexpr std::string_view kMember = ", \"data_name\": \"";
  std::string out;
  out.reserve(text.size());
  for (;;) {
    const size_t at = text.find(kMember);
    if (at == std::string_view::npos) break;
    const size_t end = text.find('"', at + kMember.size());  // file names have no quotes
    if (end == std::string_view::npos) break;
    const bool stays = keep(text.substr(at + kMember.size(), end - at - kMember.size()));
    out += text.substr(0, stays ? end + 1 : at);
    text.remove_prefix(end + 1);
  }
  out += text;
  return out;
}

bool Entry::Saves(const TensorView* view) const {
  return style_.tensors != nullptr && view != nullptr && view->data != nullptr &&
         view->num_elements() > 0;
}

void Entry::Tensor(const TensorLeaf& leaf) {
  if (!Place()) return;
  TensorLeaf described = leaf;
  TensorView view;
  Shape shape;
  std::vector<int64_t> strides;
  if (leaf.view != nullptr && style_.slice != nullptr && !style_.slice->empty()) {
    view = Sliced(*leaf.view, *style_.slice, shape, strides);
    described.view = &view;
    described.shape = view.shape;
  }
  std::string data_name;
  if (Saves(described.view)) data_name = SaveTensor(*described.view, LeafPath());
  MeasureTensor(described, data_name, leaf.shape);
}

// `shape` of the tensor of which `leaf` may show a slice.
void Entry::MeasureTensor(const TensorLeaf& leaf, std::string_view data_name,
                          std::span<const int64_t> shape, Gap* gap) {
  LeafNotes notes;
  notes.data_name = data_name;
  std::string from;
  std::optional<metrics::TensorStats> known;
  metrics::TensorStats measured;
  const bool whole = std::ranges::equal(shape, leaf.shape);
  const bool can_reuse = style_.reuse && whole && leaf.view != nullptr;
  if (style_.origins != nullptr && leaf.memory.storage != 0) {
    const Origins::Piece piece{leaf.memory, shape, leaf.memory.dtype};
    if (style_.from && !produces_) style_.origins->AppendFrom(from, piece, style_.step);
    if (can_reuse) known = style_.origins->Statistics(piece);
  }
  notes.evidence = leaf.from_json.empty() ? std::string_view(from) : leaf.from_json;
  notes.reused = known.has_value();
  notes.known = known.has_value() ? &*known : leaf.statistics;
  notes.measured = &measured;
  notes.gap = gap;
  const NonFinite seen = AppendTensorLeaf(memory_.text, leaf, style_.leaf, notes);
  non_finite_ = non_finite_ || (seen.known && seen.any);
  if (output_part_ && seen.known) flag_ = flag_ == 1 || seen.any ? 1 : 0;
  if (produces_) NoteOrigin(leaf.memory, shape, can_reuse ? &measured : nullptr);
}

void Entry::NoteOrigin(const MemoryId& memory, std::span<const int64_t> shape,
                       const metrics::TensorStats* statistics) {
  if (style_.origins == nullptr || memory.storage == 0) return;
  const bool module =
      tag_.kind == EntryTag::Kind::kModule || tag_.kind == EntryTag::Kind::kModuleBackward;
  style_.origins->Note({memory, shape, memory.dtype},
                       {memory_.name, LeafPath(), style_.step, module, statistics});
}

Deferral Entry::CanDefer() const {
  // A check decides by the elements what becomes of the entry, and when the run ends.
  const bool checked = style_.hold || !style_.leaf.statistics;
  if (!in_part_ || skipping_ || fragment_ || whole_ || checked) return Deferral::kNone;
  const bool sliced = style_.slice != nullptr && !style_.slice->empty();
  const bool plain = style_.leaf.summary == config::SummaryMode::kStatistics && !style_.leaf.hash &&
                     !style_.leaf.sketch && !sliced && style_.tensors == nullptr;
  return plain ? Deferral::kStatistics : Deferral::kElements;
}

uint32_t Entry::DeferredTensor(const TensorLeaf& leaf) {
  if (CanDefer() == Deferral::kNone || !Place()) return UINT32_MAX;
  TensorLeaf described = leaf;
  Shape shape;
  std::vector<int64_t> strides;
  if (style_.slice != nullptr && !style_.slice->empty()) {
    const TensorView nowhere{nullptr, DType::kU8, leaf.shape, {}};
    described.shape = Sliced(nowhere, *style_.slice, shape, strides).shape;
  }
  Gap gap;
  MeasureTensor(described, {}, leaf.shape, &gap);
  gaps_.push_back(gap);
  gap_paths_.push_back(LeafPath());
  gap_texts_.emplace_back();
  Fill(gap_texts_.back(), Measured(nullptr, {}, style_.leaf, nullptr), {});  // until it is settled
  return static_cast<uint32_t>(gaps_.size() - 1);
}

void Entry::Settle(uint32_t number, const metrics::TensorStats& statistics) {
  if (done_ || number >= gaps_.size()) return;
  Fill(gap_texts_[number], Measured(nullptr, {}, style_.leaf, &statistics), {});
  non_finite_ = non_finite_ || statistics.nan + statistics.inf > 0;
}

void Entry::Settle(uint32_t number, const TensorView& elements) {
  if (done_ || number >= gaps_.size()) return;
  TensorView view = elements;
  Shape shape;
  std::vector<int64_t> strides;
  if (style_.slice != nullptr && !style_.slice->empty())
    view = Sliced(elements, *style_.slice, shape, strides);
  std::string data_name;
  if (Saves(&view)) data_name = SaveTensor(view, gap_paths_[number]);
  const Measured measured(&view, view.shape, style_.leaf, nullptr);
  Fill(gap_texts_[number], measured, data_name);
  const NonFinite seen = measured.non_finite();
  non_finite_ = non_finite_ || (seen.known && seen.any);
}

void Entry::Null() {
  if (Place()) memory_.text += "null";
}

uint32_t Entry::Slot() {
  if (tag_.kind != EntryTag::Kind::kDebugGrad || !Place()) return UINT32_MAX;
  slots_.push_back({memory_.text.size(), LeafPath()});
  memory_.text += "null";
  return static_cast<uint32_t>(slots_.size() - 1);
}

void Entry::AbsentLeaf(Absent code, std::string_view reason) {
  if (!Place()) return;
  memory_.text += "null";
  NoteAbsent(code, reason);
}

void Entry::Scalar(std::string_view type, std::string_view value_json) {
  if (!Place()) return;
  std::string& text = memory_.text;
  text += "{\"type\": ";
  json::AppendString(text, type);
  text += ", \"value\": ";
  text += value_json.empty() ? std::string_view("null") : value_json;
  text += '}';
}

void Entry::Raw(std::string_view json) {
  if (Place()) memory_.text += json.empty() ? std::string_view("null") : json;
}

void Entry::Extra(std::string_view key, std::string_view json) {
  if (done_ || fragment_ || json.empty()) return;
  memory_.extra += ", ";
  json::AppendString(memory_.extra, key);
  memory_.extra += ": ";
  memory_.extra += json;
}

// ---- the end
// ---------------------------------------------------------------------------------------

void Entry::CloseText() {
  if (fragment_) {
    dropped_depth_ = 0;
    while (!memory_.frames.empty()) Close(memory_.frames.back().object);
    if (!root_filled_) memory_.text += "null";
    return;
  }
  EndPart();
  if (!gaps_.empty()) memory_.text = FillGaps(memory_.text, gaps_, gap_texts_);
  std::string& text = memory_.text;
  if (whole_) return;
  if (style_.with_flag) {
    text += parts_ > 0 ? ", \"is_nan\": " : "\"is_nan\": ";
    text += flag_ < 0 ? "null" : flag_ == 1 ? "1" : "0";
  }
  text += memory_.extra;
  body_size_ = text.size();
  if (!memory_.absent.empty()) {
    text += ", \"absent\": {";
    text += memory_.absent;
    text += '}';
  }
  text += '}';
}

void Entry::Commit() {
  if (done_) return;
  CloseText();
  done_ = true;
  if (style_.hold) SettleHeldFiles();
  owner_.Finish(*this, true);
}

void Entry::Discard() {
  if (done_) return;
  done_ = true;
  owner_.Finish(*this, false);
}

}  // namespace msprobe::collect
