#include "compare/flatten.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/text.h"
#include "kernels/checksum.h"

namespace msprobe::compare {
namespace {

using json::Value;

constexpr std::string_view kP2POp = "torch.distributed.P2POp";
constexpr std::string_view kCrcOfNothing = "00000000";

// The members of a leaf object that matter, found in one pass; the last of a repeated key counts.
struct Fields {
  const Value* type = nullptr;
  const Value* value = nullptr;
  const Value* dtype = nullptr;
  const Value* shape = nullptr;
  const Value* max = nullptr;
  const Value* min = nullptr;
  const Value* mean = nullptr;
  const Value* norm = nullptr;
  const Value* md5 = nullptr;
  const Value* data_name = nullptr;
  const Value* requires_grad = nullptr;
  const Value* group_ranks = nullptr;
  const Value* class_type = nullptr;
  const Value* format = nullptr;
  const Value* layout = nullptr;
  const Value* device = nullptr;
  const Value* nan = nullptr;
  const Value* inf = nullptr;
  const Value* hash64 = nullptr;
  const Value* sketch = nullptr;
};

struct Field {
  std::string_view key;
  const Value* Fields::* member;
};
constexpr std::array<Field, 20> kFields = {{{"type", &Fields::type},
                                            {"value", &Fields::value},
                                            {"dtype", &Fields::dtype},
                                            {"shape", &Fields::shape},
                                            {"Max", &Fields::max},
                                            {"Min", &Fields::min},
                                            {"Mean", &Fields::mean},
                                            {"Norm", &Fields::norm},
                                            {"md5", &Fields::md5},
                                            {"data_name", &Fields::data_name},
                                            {"requires_grad", &Fields::requires_grad},
                                            {"group_ranks", &Fields::group_ranks},
                                            {"class_type", &Fields::class_type},
                                            {"format", &Fields::format},
                                            {"layout", &Fields::layout},
                                            {"device", &Fields::device},
                                            {"nan", &Fields::nan},
                                            {"inf", &Fields::inf},
                                            {"hash64", &Fields::hash64},
                                            {"sketch", &Fields::sketch}}};

constexpr size_t kSlots = 32, kSizeFactor = 25, kFrontFactor = 9;
// A slot of its own for each of kFields.
constexpr size_t SlotOf(std::string_view key) {
  const auto byte = [](char c) { return static_cast<size_t>(static_cast<unsigned char>(c)); };
  return (key.size() * kSizeFactor + byte(key.front()) * kFrontFactor + byte(key.back())) % kSlots;
}
constexpr std::array<uint8_t, kSlots> kFieldOfSlot = [] {
  std::array<uint8_t, kSlots> out{};
  out.fill(kFields.size());
  for (size_t i = 0; i < kFields.size(); ++i) out[SlotOf(kFields[i].key)] = static_cast<uint8_t>(i);
  return out;
}();
static_assert(
    [] {
      for (size_t i = 0; i < kFields.size(); ++i) {
        if (kFieldOfSlot[SlotOf(kFields[i].key)] != i) return false;
      }
      return true;
    }(),
    "two fields meet in one slot: choose other factors");

Fields FieldsOf(const Value& object, uint64_t& repeated) {
  Fields fields;
  for (const Value::Member* m = object.members_begin(); m != object.members_end(); ++m) {
    if (m->key.empty()) continue;
    const size_t i = kFieldOfSlot[SlotOf(m->key)];
    if (i == kFields.size() || m->key != kFields[i].key) continue;
    const Value* Fields::* const member = kFields[i].member;
    repeated += fields.*member != nullptr;
    fields.*member = &m->value;
  }
  return fields;
}

bool IsText(const Value* value, std::string_view text) {
  return value && value->is_string() && value->as_string() == text;
}

bool IsFalsy(const Value* v) {
  if (!v) return true;
  switch (v->type()) {
    case Value::Type::kNull:
      return true;
    case Value::Type::kBool:
      return !v->as_bool();
    case Value::Type::kInt:
      return v->as_int() == 0;
    case Value::Type::kDouble:
      return v->as_double() == 0;
    case Value::Type::kBigInt:
      return false;
    default:
      return v->size() == 0;
  }
}

// Python's name of the class of a value, `<class 'int'>`.
std::string_view ClassText(const Value* v) {
  if (!v) return "<class 'NoneType'>";
  switch (v->type()) {
    case Value::Type::kNull:
      return "<class 'NoneType'>";
    case Value::Type::kBool:
      return "<class 'bool'>";
    case Value::Type::kInt:
    case Value::Type::kBigInt:
      return "<class 'int'>";
    case Value::Type::kDouble:
      return "<class 'float'>";
    case Value::Type::kString:
      return "<class 'str'>";
    case Value::Type::kArray:
      return "<class 'list'>";
    case Value::Type::kObject:
      return "<class 'dict'>";
  }
  return {};
}

// Text of numpy's shape of a nested list: a slice's `value` [1, 2, 3] gives `(3,)`.
std::string ArrayShapeText(const Value* v) {
  std::vector<size_t> shape;
  for (; v && v->is_array(); v = v->size() ? &(*v)[0] : nullptr) shape.push_back(v->size());
  if (shape.size() == 1) return fmt::format("({},)", shape[0]);
  return fmt::format("({})", fmt::join(shape, ", "));
}

// Types of leaves whose values are numbers of a tensor or array.
bool IsTensorType(const Value* type) {
  if (!type || !type->is_string()) return false;
  constexpr std::array<std::string_view, 8> kTypes = {
      "torch.Tensor",
      "torch.distributed.tensor.DTensor",
      "torch._subclasses.fake_tensor.FakeTensor",
      "torch.distributed._functional_collectives.AsyncCollectiveTensor",
      "torch.nested._internal.nested_tensor.NestedTensor",
      "BatchedTensor",
      "GradTrackingTensor",
      "numpy.ndarray"};
  return std::find(kTypes.begin(), kTypes.end(), type->as_string()) != kTypes.end();
}

// The members of an object, each key once: the last counts (decisions.md 28).
template <class Fn>
void ForEachMember(const Value& object, uint64_t& repeated, const Fn& fn) {
  std::unordered_map<std::string_view, const Value::Member*> last;
  if (object.size() > 1) {
    for (const Value::Member* m = object.members_begin(); m != object.members_end(); ++m) {
      repeated += !last.insert_or_assign(m->key, m).second;
    }
  }
  for (const Value::Member* m = object.members_begin(); m != object.members_end(); ++m) {
    if (last.empty() || last.find(m->key)->second == m) fn(*m);
  }
}

bool IsPeerName(std::string_view row_name) {
  const size_t dot = row_name.rfind('.');
  const std::string_view last = dot == std::string_view::npos ? row_name : row_name.substr(dot + 1);
  return last == "src" || last == "dst" || last == "group_src" || last == "group_dst";
}

class Flattener {
 public:
  explicit Flattener(Side& side) : side_(side) {}

  void AddEntry(std::string_view name, const Value& value) {
    side_.entries.push_back({.name = std::string(name)});
    const auto [place, fresh] = places_.try_emplace(
        side_.entries.back().name, static_cast<uint32_t>(side_.entries.size() - 1));
    if (!fresh) {
      side_.entries.pop_back();
      ++side_.duplicates;
    }
    index_ = place->second;
    Entry& entry = side_.entries[index_];
    entry.first = side_.leaves.size();
    Flatten(name, value);
    entry.count = side_.leaves.size() - entry.first;
  }

 private:
  void Flatten(std::string_view name, const Value& value) {
    path_.assign(name);
    const size_t dot = name.rfind('.');
    if (dot != std::string_view::npos && name.substr(dot + 1) == "debug") {
      return Walk(value, State::kDebug);
    }
    if (ParseEntryName(name).direction == Direction::kGrad) {
      return Walk(value, State::kParametersGrad);
    }
    if (!value.is_object()) return AddMalformed(value, State::kOutput);
    absent_ = value.Find("absent");
    if (absent_ && !absent_->is_object()) absent_ = nullptr;
    entry_length_ = path_.size();
    CountRepeatedParts(value);
    // Report order of an entry: what goes in, then parameters, then what comes out
    // (compare.md 4.1).
    Part(value, "input_args", ".input", State::kInput);
    Part(value, "input_kwargs", ".input", State::kInput);
    Part(value, "input", ".input", State::kInput);
    Part(value, "parameters", ".parameters", State::kParameters);
    Part(value, "output", ".output", State::kOutput);
    absent_ = nullptr;
  }

  void CountRepeatedParts(const Value& entry) {
    constexpr std::array<std::string_view, 5> kParts = {"input_args", "input_kwargs", "input",
                                                        "parameters", "output"};
    std::array<bool, kParts.size()> seen = {};
    for (const Value::Member* m = entry.members_begin(); m != entry.members_end(); ++m) {
      const auto at = std::find(kParts.begin(), kParts.end(), m->key);
      if (at == kParts.end()) continue;
      bool& before = seen[static_cast<size_t>(at - kParts.begin())];
      side_.duplicate_keys += before;
      before = true;
    }
  }

  void Part(const Value& entry, std::string_view key, std::string_view suffix, State state) {
    const Value* part = entry.Find(key);
    if (!part) return;
    const size_t length = path_.size();
    path_ += suffix;
    if (!part->is_null() && !part->is_array() && !part->is_object()) {
      AddMalformed(*part, state);
    } else {
      Walk(*part, state);
    }
    path_.resize(length);
  }

  void Walk(const Value& value, State state) {
    const size_t length = path_.size();
    if (value.is_null()) {
      AddUnknown(state);
    } else if (value.is_array()) {
      for (size_t i = 0; i < value.size(); ++i) {
        // Lists inside gradients number several gradients of one parameter: the name stays.
        if (state != State::kParametersGrad) {
          path_ += '.';
          path_ += fmt::format_int(i).c_str();
        }
        Walk(value[i], state);
        path_.resize(length);
      }
    } else if (value.is_object()) {
      const Fields fields = FieldsOf(value, side_.duplicate_keys);
      if (IsText(fields.class_type, kP2POp)) {
        AddP2P(value, state);
      } else if (fields.type && fields.type->is_string()) {
        AddLeaf(fields, state);
        if (fields.sketch) AddSketch(value, side_.leaves.back());
      } else {
        ForEachMember(value, side_.duplicate_keys, [&](const Value::Member& m) {
          path_ += '.';
          path_ += m.key;
          Walk(m.value, state);
          path_.resize(length);
        });
      }
    } else {
      AddMalformed(value, state);
    }
  }

  Leaf& NewLeaf(State state) {
    Leaf& leaf = side_.leaves.emplace_back();
    leaf.entry = index_;
    leaf.state = state;
    return leaf;
  }

  LeafMore& More(Leaf& leaf) {
    if (leaf.more == &kNothingMore) leaf.more = &side_.more.emplace_back();
    return side_.more.back();  // of the leaf at work
  }

  void AddUnknown(State state) {
    Leaf& leaf = NewLeaf(state);
    leaf.name = side_.arena.Copy(path_);
    leaf.md5 = "N/A";
    leaf.is_null = true;
    if (!absent_) return;
    const Value* note =
        absent_->Find(std::string_view(path_).substr(std::min(path_.size(), entry_length_ + 1)));
    if (!note || !note->is_object()) return;
    const Value* code = note->Find("code");
    const Value* reason = note->Find("reason");
    leaf.lack = Leaf::Lack::kAbsent;
    More(leaf).lack_reason = Pooled(
        fmt::format("{}: {}", code ? json::PyStr(*code) : "?", reason ? json::PyStr(*reason) : ""));
  }

  // A bare value where an object, a list or null is expected.
  void AddMalformed(const Value& value, State state) {
    Leaf& leaf = NewLeaf(state);
    leaf.name = side_.arena.Copy(path_);
    leaf.md5 = "N/A";
    leaf.dtype = ClassText(&value);
    leaf.shape = "[]";
    leaf.lack = Leaf::Lack::kMalformed;
    More(leaf).lack_reason = "a bare value stands where a record is expected";
    ++side_.malformed;
  }

  void AddP2P(const Value& object, State state) {
    const Value* tensor = object.Find("tensor");
    if (tensor && tensor->is_object()) {
      AddLeaf(FieldsOf(*tensor, side_.duplicate_keys), state);
    } else {
      AddUnknown(state);
    }
    Leaf& leaf = side_.leaves.back();
    if (const Value* op = object.Find("op")) More(leaf).p2p_op = Text(*op);
    if (const Value* peer = object.Find("peer")) More(leaf).p2p_peer = Text(*peer);
  }

  void AddLeaf(const Fields& f, State state) {
    Leaf& leaf = NewLeaf(state);
    if (f.data_name && f.data_name->is_string() && f.data_name->size()) {
      leaf.data_name = side_.arena.Copy(f.data_name->as_string());
      leaf.name = WithoutExtension(leaf.data_name);
    } else {
      leaf.name = side_.arena.Copy(path_);
    }
    if (f.requires_grad && f.requires_grad->is_bool()) {
      leaf.requires_grad = f.requires_grad->as_bool() ? Leaf::Grad::kTrue : Leaf::Grad::kFalse;
    }
    if (f.md5) side_.has_md5 = true;
    leaf.has_sum = !IsFalsy(f.md5);
    if (f.nan && f.nan->is_int()) leaf.nan = f.nan->as_int();
    if (f.inf && f.inf->is_int()) leaf.inf = f.inf->as_int();
    if (f.hash64 && f.hash64->is_string() && f.hash64->size() > 0) {
      More(leaf).hash64 = side_.arena.Copy(f.hash64->as_string());
    }
    leaf.md5 = IsFalsy(f.md5) ? Crc(f.value) : Text(*f.md5);
    if (IsFalsy(f.dtype)) return FillValue(f, leaf);
    leaf.is_tensor = true;
    leaf.packed =
        f.layout || IsText(f.type, "BatchedTensor") || IsText(f.type, "GradTrackingTensor");
    leaf.no_storage =
        IsText(f.device, "meta") || IsText(f.type, "torch._subclasses.fake_tensor.FakeTensor");
    leaf.dtype = Text(*f.dtype);
    leaf.shape = ShapeCell(f.shape);
    leaf.max = Statistic(f.max);
    leaf.min = Statistic(f.min);
    leaf.mean = Statistic(f.mean);
    leaf.norm = Statistic(f.norm);
  }

  void AddSketch(const Value& object, Leaf& leaf) {
    Result<std::optional<metrics::Sketch>> sketch = metrics::ReadSketch(object);
    if (!sketch.ok()) {
      if (side_.bad_sketches++ == 0) {
        side_.bad_sketch = fmt::format("{}: {}", leaf.name, sketch.error().ToString());
      }
      return;
    }
    if (!*sketch) return;
    leaf.sketch = static_cast<int64_t>(side_.sketches.size());
    KeptSketch& kept = side_.sketches.emplace_back();
    kept.head = std::move(**sketch);
    kept.values.assign(kept.head.values.begin(), kept.head.values.end());
    kept.head.values = {};
  }

  // A leaf without dtype: a Python value (the table of compare.md 4.3).
  void FillValue(const Fields& f, Leaf& leaf) {
    const std::string_view type = f.type && f.type->is_string() ? f.type->as_string() : "";
    leaf.shape = "[]";
    leaf.is_device = type == "torch.device";
    if (type == "torch.Size") {
      leaf.dtype = "torch.Size";
      leaf.shape = f.value ? Text(*f.value) : "None";
    } else if (type == "slice") {
      leaf.dtype = "slice";
      leaf.shape = Pooled(ArrayShapeText(f.value));
    } else if (type == "ellipsis") {
      leaf.dtype = "ellipsis";
      Everywhere(leaf, ValueCell(f.value));
    } else if (IsPeerName(leaf.name)) {
      leaf.dtype = Pooled(type);
      leaf.md5 = f.value ? Text(*f.value) : "None";
      Everywhere(leaf, CellValue::Text(leaf.md5));
    } else if (type == "torch.ProcessGroup") {
      leaf.dtype = "torch.ProcessGroup";
      leaf.md5 = f.group_ranks ? Text(*f.group_ranks) : "None";
      Everywhere(leaf, CellValue::Text(leaf.md5));
    } else {
      leaf.dtype = ClassText(f.value);
      Everywhere(leaf, ValueCell(f.value));
    }
    if (IsTensorType(f.type)) {
      leaf.lack = Leaf::Lack::kMalformed;
      More(leaf).lack_reason = "a tensor without dtype";
      ++side_.malformed;
    } else if (!f.value && !f.group_ranks && !f.format) {
      leaf.lack = Leaf::Lack::kNoValue;
      More(leaf).lack_reason = "no value was recorded";
    } else if (!f.value && f.format) {
      More(leaf).word = Text(*f.format);
    }
  }

  static void Everywhere(Leaf& leaf, const CellValue& cell) {
    leaf.max = leaf.min = leaf.mean = leaf.norm = cell;
  }

  // A statistic of a tensor: numbers, also quoted ones that JSON cannot say, and the texts of
  // bools.
  CellValue Statistic(const Value* v) {
    if (v && v->is_bool()) {
      return CellValue::Text(v->as_bool() ? "True" : "False");
    }
    double number = 0;
    if (v && v->is_string() && ParsePyFloat(v->as_string(), number)) {
      return CellValue::Double(number);
    }
    return ValueCell(v);
  }

  CellValue ValueCell(const Value* v) {
    if (!v) return {};
    switch (v->type()) {
      case Value::Type::kNull:
        return {};
      case Value::Type::kBool:
        return CellValue::Bool(v->as_bool());
      case Value::Type::kInt:
        return CellValue::Int(v->as_int());
      case Value::Type::kDouble:
        return CellValue::Double(v->as_double());
      case Value::Type::kBigInt:
        return CellValue::BigInt(Text(*v));
      default:
        return CellValue::Text(Text(*v));
    }
  }

  std::string_view ShapeCell(const Value* v) {
    if (!v) return "None";
    if (!v->is_array()) return Text(*v);
    scratch_ = "[";
    for (const Value& extent : *v) {
      if (!extent.is_int()) return Text(*v);
      if (scratch_.size() > 1) scratch_ += ", ";
      scratch_ += fmt::format_int(extent.as_int()).c_str();
    }
    scratch_ += ']';
    return Pooled(scratch_);
  }

  // The pool's copy of a text that repeats: mostly one of the last few.
  std::string_view Pooled(std::string_view text) {
    if (text.empty()) return {};
    const auto byte = [](char c) { return static_cast<size_t>(static_cast<unsigned char>(c)); };
    const size_t slot = text.size() * 31 + byte(text[text.size() / 2]) * 7 + byte(text.back());
    std::string_view& recent = recent_[slot % recent_.size()];
    if (recent != text) recent = side_.pool.Intern(text);
    return recent;
  }

  // str(value); short texts repeat, long ones hardly do.
  std::string_view Text(const Value& v) {
    if (v.is_string() && v.size() <= 32) return Pooled(v.as_string());
    if (v.is_string()) return side_.arena.Copy(v.as_string());
    return Pooled(json::PyStr(v));
  }

  std::string_view Crc(const Value* v) {
    if (!v) return kCrcOfNothing;
    const std::string text = json::PyStr(*v);
    const uint32_t crc =
        kernels::Crc32(0, reinterpret_cast<const std::byte*>(text.data()), text.size());
    return Pooled(fmt::format("{:08x}", crc));
  }

  Side& side_;
  std::unordered_map<std::string_view, uint32_t> places_;  // names are those of the entries
  std::array<std::string_view, 64> recent_ = {};           // of the pool
  std::string path_, scratch_;
  const Value* absent_ = nullptr;  // of the entry: leaf path to the reason it was not recorded
  size_t entry_length_ = 0;        // of the entry's name at the start of path_
  uint32_t index_ = 0;
};

}  // namespace

std::string_view WithoutExtension(std::string_view data_name) {
  const size_t slash = data_name.rfind('/');
  const size_t base = slash == std::string_view::npos ? 0 : slash + 1;
  const size_t dot = data_name.rfind('.');
  // As os.path.splitext: leading dots of the base name start no extension.
  if (dot == std::string_view::npos || dot < base) return data_name;
  if (data_name.find_first_not_of('.', base) >= dot) return data_name;
  return data_name.substr(0, dot);
}

Status ReadSide(const std::string& path, Side& side) {
  Flattener flattener(side);
  MSPROBE_ASSIGN(side.info, dump::ReadDump(path, [&](std::string_view name, const Value& value) {
                   flattener.AddEntry(name, value);
                   return side.entries.size() < std::numeric_limits<uint32_t>::max();
                 }));
  return {};
}

}  // namespace msprobe::compare
