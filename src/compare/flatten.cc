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
};

struct Field {
  std::string_view key;
  const Value* Fields::* member;
};
constexpr std::array<Field, 13> kFields = {{{"type", &Fields::type},
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
                                            {"class_type", &Fields::class_type}}};

Fields FieldsOf(const Value& object) {
  Fields fields;
  for (const Value::Member* m = object.members_begin(); m != object.members_end(); ++m) {
    for (const Field& f : kFields) {
      if (m->key == f.key) {
        fields.*f.member = &m->value;
        break;
      }
    }
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

bool IsPeerName(std::string_view row_name) {
  const size_t dot = row_name.rfind('.');
  const std::string_view last = dot == std::string_view::npos ? row_name : row_name.substr(dot + 1);
  return last == "src" || last == "dst" || last == "group_src" || last == "group_dst";
}

class Flattener {
 public:
  explicit Flattener(Side& side) : side_(side) {}

  void AddEntry(std::string_view name, const Value& value) {
    auto [it, fresh] = places_.try_emplace(std::string(name), side_.entries.size());
    if (fresh) {
      side_.entries.push_back({.name = std::string(name)});
    } else {
      ++side_.duplicates;
    }
    index_ = static_cast<uint32_t>(it->second);
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
    if (!value.is_object()) return;
    // Report order of an entry: what goes in, then parameters, then what comes out
    // (compare.md 4.1).
    Part(value, "input_args", ".input", State::kInput);
    Part(value, "input_kwargs", ".input", State::kInput);
    Part(value, "input", ".input", State::kInput);
    Part(value, "parameters", ".parameters", State::kParameters);
    Part(value, "output", ".output", State::kOutput);
  }

  void Part(const Value& entry, std::string_view key, std::string_view suffix, State state) {
    const Value* part = entry.Find(key);
    if (!part) return;
    const size_t length = path_.size();
    path_ += suffix;
    Walk(*part, state);
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
      const Fields fields = FieldsOf(value);
      if (IsText(fields.class_type, kP2POp)) {
        AddP2P(value, state);
      } else if (fields.type && fields.type->is_string()) {
        AddLeaf(fields, state);
      } else {
        for (const Value::Member* m = value.members_begin(); m != value.members_end(); ++m) {
          path_ += '.';
          path_ += m->key;
          Walk(m->value, state);
          path_.resize(length);
        }
      }
    }
  }

  Leaf& NewLeaf(State state) {
    Leaf& leaf = side_.leaves.emplace_back();
    leaf.entry = index_;
    leaf.state = state;
    return leaf;
  }

  void AddUnknown(State state) {
    Leaf& leaf = NewLeaf(state);
    leaf.name = side_.arena.Copy(path_);
    leaf.md5 = "N/A";
    leaf.is_null = true;
  }

  void AddP2P(const Value& object, State state) {
    const Value* tensor = object.Find("tensor");
    if (tensor && tensor->is_object()) {
      AddLeaf(FieldsOf(*tensor), state);
    } else {
      AddUnknown(state);
    }
    Leaf& leaf = side_.leaves.back();
    if (const Value* op = object.Find("op")) leaf.p2p_op = Text(*op);
    if (const Value* peer = object.Find("peer")) leaf.p2p_peer = Text(*peer);
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
    leaf.md5 = IsFalsy(f.md5) ? Crc(f.value) : Text(*f.md5);
    if (IsFalsy(f.dtype)) return FillValue(f, leaf);
    leaf.is_tensor = true;
    leaf.dtype = Text(*f.dtype);
    leaf.shape = ShapeCell(f.shape);
    leaf.max = Statistic(f.max);
    leaf.min = Statistic(f.min);
    leaf.mean = Statistic(f.mean);
    leaf.norm = Statistic(f.norm);
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
      leaf.shape = side_.pool.Intern(ArrayShapeText(f.value));
    } else if (type == "ellipsis") {
      leaf.dtype = "ellipsis";
      Everywhere(leaf, ValueCell(f.value));
    } else if (IsPeerName(leaf.name)) {
      leaf.dtype = side_.pool.Intern(type);
      leaf.md5 = f.value ? Text(*f.value) : "None";
      Everywhere(leaf, {.kind = CellValue::Kind::kText, .text = leaf.md5});
    } else if (type == "torch.ProcessGroup") {
      leaf.dtype = "torch.ProcessGroup";
      leaf.md5 = f.group_ranks ? Text(*f.group_ranks) : "None";
      Everywhere(leaf, {.kind = CellValue::Kind::kText, .text = leaf.md5});
    } else {
      leaf.dtype = ClassText(f.value);
      Everywhere(leaf, ValueCell(f.value));
    }
  }

  static void Everywhere(Leaf& leaf, const CellValue& cell) {
    leaf.max = leaf.min = leaf.mean = leaf.norm = cell;
  }

  // A statistic of a tensor: numbers, also quoted ones that JSON cannot say, and the texts of
  // bools.
  CellValue Statistic(const Value* v) {
    if (v && v->is_bool()) {
      return {.kind = CellValue::Kind::kText, .text = v->as_bool() ? "True" : "False"};
    }
    double number = 0;
    if (v && v->is_string() && ParsePyFloat(v->as_string(), number)) {
      return {.kind = CellValue::Kind::kDouble, .d = number};
    }
    return ValueCell(v);
  }

  CellValue ValueCell(const Value* v) {
    if (!v) return {};
    switch (v->type()) {
      case Value::Type::kNull:
        return {};
      case Value::Type::kBool:
        return {.kind = CellValue::Kind::kBool, .b = v->as_bool()};
      case Value::Type::kInt:
        return {.kind = CellValue::Kind::kInt, .i = v->as_int()};
      case Value::Type::kDouble:
        return {.kind = CellValue::Kind::kDouble, .d = v->as_double()};
      case Value::Type::kBigInt:
        return {.kind = CellValue::Kind::kBigInt, .d = v->as_double(), .text = Text(*v)};
      default:
        return {.kind = CellValue::Kind::kText, .text = Text(*v)};
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
    return side_.pool.Intern(scratch_);
  }

  // str(value); short texts repeat, long ones hardly do.
  std::string_view Text(const Value& v) {
    if (v.is_string() && v.size() <= 32) return side_.pool.Intern(v.as_string());
    if (v.is_string()) return side_.arena.Copy(v.as_string());
    return side_.pool.Intern(json::PyStr(v));
  }

  std::string_view Crc(const Value* v) {
    if (!v) return kCrcOfNothing;
    const std::string text = json::PyStr(*v);
    const uint32_t crc =
        kernels::Crc32(0, reinterpret_cast<const std::byte*>(text.data()), text.size());
    return side_.pool.Intern(fmt::format("{:08x}", crc));
  }

  Side& side_;
  std::unordered_map<std::string, size_t> places_;
  std::string path_, scratch_;
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
