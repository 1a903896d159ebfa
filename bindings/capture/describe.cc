#include "bindings/capture/describe.h"

#include <algorithm>
#include <unordered_map>

#include "bindings/capture/state.h"
#include "json/json.h"

namespace msprobe::capture {
namespace {

using collect::Absent;
using collect::Part;

constexpr size_t kMaxDepth = 399;  // below the root list of a part; upstream raises beyond 400
constexpr uint32_t kMaxLeaves = 200'000;  // of one entry: a few shared lists can unfold without end

enum class Kind : uint8_t {
  kTensor,
  kNone,
  kBool,
  kInt,
  kFloat,
  kStr,
  kEllipsis,
  kSlice,
  kSize,
  kDtype,
  kDevice,
  kMemoryFormat,
  kLayout,
  kSequence,
  kNamedTuple,
  kDict,
  kDataclass,
  kOther,
};

bool IsSubtype(PyTypeObject* type, const PyTypeObject* base) {
  return base != nullptr && PyType_IsSubtype(type, const_cast<PyTypeObject*>(base)) != 0;
}

bool HasTypeAttribute(PyTypeObject* type, PyObject* name) {
  const Ref found = Ref::Steal(PyObject_GetAttr(reinterpret_cast<PyObject*>(type), name));
  if (!found) ClearError();
  return static_cast<bool>(found);
}

// NumPy's scalar types are subclasses of Python's float and str, so they are told by the name of a
// base.
bool IsNumpyScalar(PyTypeObject* type) {
  for (PyTypeObject* t = type; t != nullptr; t = t->tp_base) {
    if (std::string_view(t->tp_name) == "numpy.generic") return true;
  }
  PyObject* mro = type->tp_mro;
  for (Py_ssize_t i = 0; mro != nullptr && i < PyTuple_GET_SIZE(mro); ++i) {
    const auto* t = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i));
    if (std::string_view(t->tp_name) == "numpy.generic") return true;
  }
  return false;
}

Kind Resolve(PyTypeObject* type) {
  const Torch& torch = torch_objects();
  if (IsSubtype(type, torch.tensor)) return Kind::kTensor;
  if (type == Py_TYPE(Py_None)) return Kind::kNone;
  if (type == &PyBool_Type) return Kind::kBool;
  if (IsNumpyScalar(type)) return Kind::kOther;
  if (IsSubtype(type, &PyLong_Type)) return Kind::kInt;
  if (IsSubtype(type, &PyFloat_Type)) return Kind::kFloat;
  if (IsSubtype(type, &PyUnicode_Type)) return Kind::kStr;
  if (type == &PyEllipsis_Type) return Kind::kEllipsis;
  if (type == &PySlice_Type) return Kind::kSlice;
  if (type == torch.size) return Kind::kSize;
  if (type == torch.dtype) return Kind::kDtype;
  if (type == torch.device) return Kind::kDevice;
  if (type == torch.memory_format) return Kind::kMemoryFormat;
  if (type == torch.layout) return Kind::kLayout;
  if (IsSubtype(type, &PyDict_Type)) return Kind::kDict;
  if (IsSubtype(type, &PyTuple_Type)) {
    return HasTypeAttribute(type, torch.s_fields) ? Kind::kNamedTuple : Kind::kSequence;
  }
  if (IsSubtype(type, &PyList_Type)) return Kind::kSequence;
  if (HasTypeAttribute(type, torch.s_dataclass_fields)) return Kind::kDataclass;
  return Kind::kOther;
}

Kind KindOf(PyTypeObject* type) {
  constexpr size_t kMaxTypes = 10'000;
  static auto* const cache = new std::unordered_map<PyTypeObject*, Kind>;
  if (const auto it = cache->find(type); it != cache->end()) return it->second;
  const Kind kind = Resolve(type);
  if (cache->size() < kMaxTypes) {
    Py_INCREF(type);  // so that its address stays its own
    cache->emplace(type, kind);
  }
  return kind;
}

// "torch.float32" -> text of str(value), or empty.
std::string TextOf(PyObject* value) {
  const Ref text = Ref::Steal(PyObject_Str(value));
  if (!text) {
    ClearError();
    return {};
  }
  return std::string(Utf8(text.get()).view());
}

std::string Quoted(std::string_view text) {
  std::string out;
  json::AppendString(out, text);
  return out;
}

}  // namespace

std::string KeyText(PyObject* key) {
  if (PyUnicode_Check(key)) return std::string(Utf8(key).view());
  if (key == Py_None) return "null";
  if (PyBool_Check(key)) return key == Py_True ? "true" : "false";
  const Ref text = Ref::Steal(PyObject_Repr(key));
  if (!text) {
    ClearError();
    return std::string("<") + Py_TYPE(key)->tp_name + ">";
  }
  std::string out(Utf8(text.get()).view());
  if (out.size() > 200) out.resize(200);
  return out;
}

Utf8::Utf8(PyObject* string) {
  Py_ssize_t size = 0;
  if (const char* text = PyUnicode_AsUTF8AndSize(string, &size)) {
    view_ = {text, static_cast<size_t>(size)};
    return;
  }
  ClearError();
  bytes_ = Ref::Steal(PyUnicode_AsEncodedString(string, "utf-8", "surrogatepass"));
  if (!bytes_) {
    ClearError();
    return;
  }
  view_ = {PyBytes_AS_STRING(bytes_.get()), static_cast<size_t>(PyBytes_GET_SIZE(bytes_.get()))};
}

bool IsNamedTuple(PyObject* value) {
  return PyTuple_Check(value) && !PyTuple_CheckExact(value) &&
         KindOf(Py_TYPE(value)) == Kind::kNamedTuple;
}

bool Describer::Enter(PyObject* container) {
  if (containers_.size() >= kMaxDepth) {
    builder_.AbsentLeaf(Absent::kOutOfBudget, "nesting deeper than 400");
    return false;
  }
  if (std::find(containers_.begin(), containers_.end(), container) != containers_.end()) {
    builder_.AbsentLeaf(Absent::kUnsupported, "a container that contains itself");
    return false;
  }
  containers_.push_back(container);
  return true;
}

void Describer::Value(PyObject* value) {
  const Torch& torch = torch_objects();
  PyTypeObject* const type = Py_TYPE(value);
  if (type == torch.tensor || type == torch.parameter) {
    Tensor(value);
    return;
  }
  if (value == Py_None) {
    builder_.Null();
    return;
  }
  if (++leaves_ > kMaxLeaves) {
    builder_.AbsentLeaf(Absent::kOutOfBudget, "more than 200000 values in one entry");
    return;
  }
  if (Simple(value) || OfTorch(value)) return;
  switch (KindOf(type)) {
    case Kind::kTensor:
      Tensor(value);
      break;
    case Kind::kSequence:
      Sequence(value);
      break;
    case Kind::kNamedTuple: {
      const Ref names = Ref::Steal(PyObject_GetAttr(value, torch.s_fields));
      Fields(value, names.get());
      break;
    }
    case Kind::kDict:
      Dict(value);
      break;
    case Kind::kDataclass: {
      const Ref fields = Ref::Steal(PyObject_GetAttr(value, torch.s_dataclass_fields));
      Fields(value, fields.get());
      break;
    }
    default:
      Other(value);
  }
}

// Values of Python itself that have a leaf; false: it is none of them.
bool Describer::Simple(PyObject* value) {
  switch (KindOf(Py_TYPE(value))) {
    case Kind::kNone:
      builder_.Null();
      return true;
    case Kind::kBool:
      builder_.Scalar("bool", value == Py_True ? "true" : "false");
      return true;
    case Kind::kInt:
      Int(value);
      return true;
    case Kind::kFloat: {
      std::string text;
      json::AppendDouble(text, PyFloat_AS_DOUBLE(value));
      builder_.Scalar("float", text);
      return true;
    }
    case Kind::kStr:
      builder_.Scalar("str", Quoted(Utf8(value).view()));
      return true;
    case Kind::kEllipsis:
      builder_.Scalar("ellipsis", "\"...\"");
      return true;
    case Kind::kSlice:
      Slice(value);
      return true;
    default:
      return false;
  }
}

// Values of torch that are no tensors; false: it is none of them.
bool Describer::OfTorch(PyObject* value) {
  switch (KindOf(Py_TYPE(value))) {
    case Kind::kSize: {
      std::string text = "[";
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i) {
        if (i > 0) text += ", ";
        text += TextOf(PyTuple_GET_ITEM(value, i));
      }
      builder_.Scalar("torch.Size", text + "]");
      return true;
    }
    case Kind::kDtype:
      builder_.Scalar("torch.dtype", Quoted(TextOf(value)));
      return true;
    case Kind::kDevice:
      builder_.Scalar("torch.device", Quoted(TextOf(value)));
      return true;
    case Kind::kLayout:
      builder_.Scalar("torch.layout", Quoted(TextOf(value)));
      return true;
    case Kind::kMemoryFormat: {
      std::string text = TextOf(value);
      if (text.starts_with("torch.")) text.erase(0, 6);
      builder_.Raw("{\"type\": \"torch.memory_format\", \"format\": " + Quoted(text) + "}");
      return true;
    }
    default:
      return false;
  }
}

void Describer::Int(PyObject* value) {
  int overflow = 0;
  const long long small = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow == 0) {
    std::string text;
    json::AppendInt(text, small);
    builder_.Scalar("int", text);
    return;
  }
  // Python refuses to print integers beyond some thousand digits.
  const Ref text = Ref::Steal(PyLong_Type.tp_repr(value));
  if (!text) {
    ClearError();
    builder_.AbsentLeaf(Absent::kUnsupported, "an int that is too long to print");
    return;
  }
  builder_.Scalar("int", Utf8(text.get()).view());
}

void Describer::Slice(PyObject* slice) {
  const auto* s = reinterpret_cast<PySliceObject*>(slice);
  std::string text = "[";
  for (PyObject* bound : {s->start, s->stop, s->step}) {
    if (text.size() > 1) text += ", ";
    if (bound == Py_None) {
      text += "null";
      continue;
    }
    const Quiet quiet;
    const Ref index = Ref::Steal(PyNumber_Index(bound));
    if (!index) {
      const std::string why = TakeErrorText();
      builder_.AbsentLeaf(Absent::kUnsupported, "slice bound: " + why);
      return;
    }
    text += TextOf(index.get());
  }
  builder_.Scalar("slice", text + "]");
}

void Describer::Sequence(PyObject* sequence) {
  if (!Enter(sequence)) return;
  builder_.OpenList();
  // The size is asked each time: describing an element may run code that changes the list.
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence); ++i) {
    const Ref item = Ref::Borrow(PySequence_Fast_GET_ITEM(sequence, i));
    Value(item.get());
  }
  builder_.CloseList();
  Leave();
}

void Describer::Dict(PyObject* dict) {
  if (!Enter(dict)) return;
  builder_.OpenObject();
  Py_ssize_t position = 0;
  PyObject *key = nullptr, *value = nullptr;
  while (PyDict_Next(dict, &position, &key, &value) != 0) {
    const Ref k = Ref::Borrow(key), v = Ref::Borrow(value);
    std::string text = KeyText(key);
    if (!PyUnicode_Check(key)) {  // 1 beside "1": a JSON object holds a key once
      const Ref as_string = Ref::Steal(
          PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
      if (as_string && PyDict_Contains(dict, as_string.get()) == 1) {
        text = text + "#" + Py_TYPE(key)->tp_name;
      }
      ClearError();
    }
    builder_.Key(text);
    Value(value);
  }
  builder_.CloseObject();
  Leave();
}

// An object keyed by `names` (a tuple of strings, or a dict whose keys they are), values by
// attribute.
void Describer::Fields(PyObject* value, PyObject* names) {
  const Ref list = Ref::Steal(names != nullptr ? PySequence_List(names) : nullptr);
  if (!list) {
    builder_.AbsentLeaf(Absent::kInternal, TakeErrorText());
    return;
  }
  if (!Enter(value)) return;
  builder_.OpenObject();
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list.get()); ++i) {
    PyObject* name = PyList_GET_ITEM(list.get(), i);
    if (!PyUnicode_Check(name)) continue;
    builder_.Key(Utf8(name).view());
    const Ref field = Ref::Steal(PyObject_GetAttr(value, name));
    if (field) {
      Value(field.get());
    } else {
      builder_.AbsentLeaf(Absent::kInternal, TakeErrorText());
    }
  }
  builder_.CloseObject();
  Leave();
}

// What is rare is recognised in Python. The helper answers None (unknown), text (a whole leaf as
// JSON), or a tuple:
// ("array", …) of ArrayLike, or ("object", [(key, json or None, value)]); `...` for json: the call
// fills the value.
void Describer::Other(PyObject* value) {
  PyObject* const helper = torch_objects().other_leaf;
  const Quiet quiet;
  const Ref answer = Ref::Steal(PyObject_CallOneArg(helper, value));
  if (!answer) {
    builder_.AbsentLeaf(Absent::kInternal, TakeErrorText());
    return;
  }
  PyObject* const a = answer.get();
  if (PyUnicode_Check(a)) {
    builder_.Raw(Utf8(a).view());
  } else if (PyTuple_Check(a) && PyTuple_GET_SIZE(a) == 2 && PyList_Check(PyTuple_GET_ITEM(a, 1))) {
    if (!Enter(value)) return;
    PyObject* const members = PyTuple_GET_ITEM(a, 1);
    builder_.OpenObject();
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(members); ++i) {
      PyObject *key = nullptr, *text = nullptr, *member = nullptr;
      if (PyArg_ParseTuple(PyList_GET_ITEM(members, i), "UOO", &key, &text, &member) == 0) {
        ClearError();
        continue;
      }
      builder_.Key(Utf8(key).view());
      if (PyUnicode_Check(text)) {
        builder_.Raw(Utf8(text).view());
      } else if (text == Py_Ellipsis && !produces_) {
        builder_.AbsentLeaf(Absent::kFiltered, "a receive buffer");
      } else {
        Value(member);
      }
    }
    builder_.CloseObject();
    Leave();
  } else if (PyTuple_Check(a)) {
    ArrayLike(a);
  } else {
    builder_.AbsentLeaf(Absent::kUnsupported,
                        std::string("a value of type ") + Py_TYPE(value)->tp_name);
  }
}

void Describer::Positional(PyObject* args, const Mask& mask) {
  builder_.BeginPart(Part::kInputArgs);
  builder_.OpenList();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) {
    if (i < 32 && (mask.positions >> i & 1u) != 0) {
      builder_.AbsentLeaf(Absent::kFiltered, "a receive buffer");
    } else {
      Value(PyTuple_GET_ITEM(args, i));
    }
  }
  builder_.CloseList();
  builder_.EndPart();
}

void Describer::Keywords(PyObject* kwargs, const Mask& mask) {
  builder_.BeginPart(Part::kInputKwargs);
  builder_.OpenObject();
  Py_ssize_t position = 0;
  PyObject *key = nullptr, *value = nullptr;
  while (kwargs != nullptr && PyDict_Next(kwargs, &position, &key, &value) != 0) {
    const Ref k = Ref::Borrow(key), v = Ref::Borrow(value);
    if (!PyUnicode_Check(key)) continue;
    const Utf8 name(key);
    builder_.Key(name.view());
    if (!mask.keyword.empty() && name.view() == mask.keyword) {
      builder_.AbsentLeaf(Absent::kFiltered, "a receive buffer");
    } else if (name.view() == "device" && (PyUnicode_Check(value) || PyLong_CheckExact(value))) {
      // As upstream: the place says that it is a device, which the replay needs to know.
      builder_.Scalar("torch.device",
                      PyUnicode_Check(value) ? Quoted(Utf8(value).view()) : TextOf(value));
    } else {
      Value(value);
    }
  }
  builder_.CloseObject();
  builder_.EndPart();
}

void Describer::Output(PyObject* output, const Mask& mask) {
  produces_ = true;
  builder_.BeginPart(Part::kOutput);
  if (IsNamedTuple(output)) {
    Value(output);
  } else {
    builder_.OpenList();
    if (PyTuple_Check(output) && KindOf(Py_TYPE(output)) == Kind::kSequence) {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(output); ++i) {
        if (i < 32 && (mask.positions >> i & 1u) != 0) {
          builder_.AbsentLeaf(Absent::kFiltered, "masked by an ignore rule");
        } else {
          Value(PyTuple_GET_ITEM(output, i));
        }
      }
    } else {
      Value(output);
    }
    builder_.CloseList();
  }
  builder_.EndPart();
}

void Describer::ArgumentsAsOutput(PyObject* args, PyObject* kwargs, const Mask& mask) {
  produces_ = true;
  builder_.BeginPart(Part::kOutput);
  builder_.OpenList();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) {
    if (i < 32 && (mask.positions >> i & 1u) != 0) {
      builder_.AbsentLeaf(Absent::kFiltered, "masked by an ignore rule");
    } else {
      Value(PyTuple_GET_ITEM(args, i));
    }
  }
  Py_ssize_t position = 0;
  PyObject *key = nullptr, *value = nullptr;
  while (kwargs != nullptr && PyDict_Next(kwargs, &position, &key, &value) != 0) {
    const Ref v = Ref::Borrow(value);
    Value(value);
  }
  builder_.CloseList();
  builder_.EndPart();
}

void Describer::Parameters(PyObject* parameters) {
  produces_ = false;
  builder_.BeginPart(Part::kParameters);
  builder_.OpenObject();
  Py_ssize_t position = 0;
  PyObject *key = nullptr, *value = nullptr;
  while (parameters != nullptr && PyDict_Check(parameters) &&
         PyDict_Next(parameters, &position, &key, &value) != 0) {
    if (value == Py_None || !PyUnicode_Check(key)) continue;  // a parameter that was set to None
    const Ref v = Ref::Borrow(value);
    builder_.Key(Utf8(key).view());
    Value(value);
  }
  builder_.CloseObject();
  builder_.EndPart();
}

}  // namespace msprobe::capture
