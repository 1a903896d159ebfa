// The callables that torch.save's pickles use, as descriptions. The argument lists are those that
// torch 1.x and 2.x write.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/checked.h"
#include "base/text.h"
#include "formats/pickle.h"

namespace msprobe::formats {
namespace {

using Kind = Node::Kind;

struct StorageClass {
  std::string_view name;
  std::optional<DType> dtype;
};
constexpr std::array kStorageClasses = {
    StorageClass{"FloatStorage", DType::kF32},
    StorageClass{"DoubleStorage", DType::kF64},
    StorageClass{"HalfStorage", DType::kF16},
    StorageClass{"BFloat16Storage", DType::kBF16},
    StorageClass{"LongStorage", DType::kI64},
    StorageClass{"IntStorage", DType::kI32},
    StorageClass{"ShortStorage", DType::kI16},
    StorageClass{"CharStorage", DType::kI8},
    StorageClass{"ByteStorage", DType::kU8},
    StorageClass{"BoolStorage", DType::kBool},
    StorageClass{"ComplexFloatStorage", DType::kC64},
    StorageClass{"ComplexDoubleStorage", DType::kC128},
    StorageClass{"UntypedStorage", std::nullopt},
    StorageClass{"_UntypedStorage", std::nullopt},
};

// Callables that are known and not read, with what they make.
struct Refusal {
  std::string_view name;
  std::string_view what;
};
constexpr std::array kRefusals = {
    Refusal{"torch._utils._rebuild_qtensor", "a quantised tensor"},
    Refusal{"torch._utils._rebuild_sparse_tensor", "a sparse tensor"},
    Refusal{"torch._utils._rebuild_sparse_csr_tensor", "a sparse tensor"},
    Refusal{"torch._utils._rebuild_nested_tensor", "a nested tensor"},
    Refusal{"torch._utils._rebuild_meta_tensor_no_storage", "a meta tensor, which has no data"},
    Refusal{"torch._utils._rebuild_wrapper_subclass", "a tensor subclass"},
    Refusal{"torch._utils._rebuild_device_tensor_from_numpy", "a device's tensor as a NumPy array"},
    Refusal{"torch._utils._rebuild_device_tensor_from_cpu_tensor",
            "a device's tensor behind a CPU tensor"},
    Refusal{"torch._utils._rebuild_xla_tensor", "an XLA tensor"},
    Refusal{"numpy.core.multiarray._reconstruct", "a NumPy array"},
    Refusal{"numpy._core.multiarray._reconstruct", "a NumPy array"},
    Refusal{"numpy._core.numeric._frombuffer", "a NumPy array"},
    Refusal{"numpy.core.numeric._frombuffer", "a NumPy array"},
    Refusal{"numpy.core.multiarray.scalar", "a NumPy number"},
    Refusal{"numpy._core.multiarray.scalar", "a NumPy number"},
};

// Harmless constructors whose results are never tensors.
constexpr std::array<Refusal, 7> kOthers = {{
    {"torch.device", "a device"},
    {"torch.serialization._get_layout", "a layout"},
    {"builtins.set", "a set"},
    {"__builtin__.set", "a set"},
    {"builtins.complex", "a number"},
    {"builtins.bytearray", "bytes"},
    {"_codecs.encode", "bytes"},
}};

constexpr size_t kMaxRank = 64;  // of PyTorch

constexpr std::array<std::string_view, 4> kPlainTypes = {"torch.Tensor", "torch._tensor.Tensor",
                                                         "torch.nn.parameter.Parameter",
                                                         "torch.nn.parameter.Buffer"};

std::string_view AfterLastDot(std::string_view name) { return name.substr(name.rfind('.') + 1); }

}  // namespace

int64_t PickledStorage::bytes() const {
  return dtype ? numel * static_cast<int64_t>(ItemSize(*dtype)) : numel;
}

const Node* Unpickler::At(const std::vector<NodeId>& ids, size_t i, Kind kind) const {
  if (i >= ids.size() || nodes_[ids[i]].kind != kind) return nullptr;
  return &nodes_[ids[i]];
}

// ('storage', class, key, location, numel), and in the legacy stream a sixth: None or the view of
// another storage.
Status Unpickler::Persistent() {
  MSPROBE_ASSIGN(const NodeId id, Pop());
  const std::vector<NodeId>& items = nodes_[id].items;
  const Node* const tag = At(items, 0, Kind::kString);
  const Node* const type = At(items, 1, Kind::kGlobal);
  const Node* const key = At(items, 2, Kind::kString);
  const Node* const numel = At(items, 4, Kind::kInt);
  if (nodes_[id].kind != Kind::kTuple || tag == nullptr || tag->text != "storage" ||
      type == nullptr || key == nullptr || At(items, 3, Kind::kString) == nullptr ||
      numel == nullptr || items.size() > 6)
    return Fail(ErrorCode::kMalformed, "a persistent id that is no storage of torch.save");
  if (items.size() == 6 && At(items, 5, Kind::kNone) == nullptr)
    return Fail(ErrorCode::kUnsupported, "a storage that is a view of another");
  if (numel->number < 0) return Fail(ErrorCode::kMalformed, "a storage of negative size");
  PickledStorage storage;
  storage.key = key->text;
  storage.class_name = type->text;
  storage.numel = numel->number;
  const std::string_view name = AfterLastDot(type->text);
  const auto* const known = std::find_if(kStorageClasses.begin(), kStorageClasses.end(),
                                         [&](const StorageClass& c) { return c.name == name; });
  if (known != kStorageClasses.end() && type->text.starts_with("torch.")) {
    storage.known = true;
    storage.dtype = known->dtype;
  }
  if (storage.dtype && !CheckedMul(storage.numel, static_cast<int64_t>(ItemSize(*storage.dtype))))
    return Fail(ErrorCode::kMalformed, "a storage larger than any memory");
  storages_.push_back(storage);
  return PushNumber(Kind::kStorage, static_cast<int64_t>(storages_.size() - 1));
}

Status Unpickler::Reduce() {
  MSPROBE_ASSIGN(const NodeId args, Pop());
  MSPROBE_ASSIGN(const NodeId callable, Pop());
  if (nodes_[callable].kind != Kind::kGlobal)
    return Fail(ErrorCode::kMalformed, "calls " + Describe(nodes_[callable]));
  if (nodes_[args].kind != Kind::kTuple)
    return Fail(ErrorCode::kMalformed, "calls with arguments that are no tuple");
  const std::vector<NodeId> list = nodes_[args].items;
  return Call(nodes_[callable].text, list, 0);
}

// State of an object that is already described: attributes of an OrderedDict (state_dict's
// _metadata) or of a tensor.
Status Unpickler::Build() {
  MSPROBE_TRY(Pop());
  if (stack_.empty()) return Fail(ErrorCode::kMalformed, "sets the state of nothing");
  const Node& node = nodes_[stack_.back()];
  if (node.kind == Kind::kDict || node.kind == Kind::kTensor) return {};
  return Fail(ErrorCode::kUnsupported, "sets the state of " + Describe(node));
}

Status Unpickler::Call(std::string_view name, const std::vector<NodeId>& args, int depth) {
  if (name == "torch._utils._rebuild_tensor_v2" || name == "torch._utils._rebuild_tensor_v3" ||
      name == "torch._utils._rebuild_tensor")
    return Rebuild(name, args);
  if (name == "torch._utils._rebuild_parameter" ||
      name == "torch._utils._rebuild_parameter_with_state")
    return RebuildParameter(args);
  if (name == "torch._tensor._rebuild_from_type_v2") return RebuildFromType(args, depth);
  if (name == "collections.OrderedDict") return OrderedDict(args);
  if (name == "torch.Size") {
    if (At(args, 0, Kind::kTuple) == nullptr)
      return Fail(ErrorCode::kMalformed, "torch.Size of no tuple");
    stack_.push_back(args[0]);
    return {};
  }
  const auto named = [&](const Refusal& r) { return r.name == name; };
  if (const auto* other = std::find_if(kOthers.begin(), kOthers.end(), named);
      other != kOthers.end())
    return Push({.kind = Kind::kOther, .text = other->what});
  if (const auto* refused = std::find_if(kRefusals.begin(), kRefusals.end(), named);
      refused != kRefusals.end()) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("holds {} ({}), which is not read", refused->what, AfterLastDot(name)));
  }
  return Fail(ErrorCode::kUnsupported, fmt::format("the call of {} is refused", VisibleText(name)));
}

Result<int64_t> Unpickler::Extent(NodeId id) const {
  const Node& node = nodes_[id];
  if (node.kind != Kind::kInt || node.number < 0)
    return Fail(ErrorCode::kMalformed, "an offset, size or stride is " + Describe(node)).error();
  return node.number;
}

Result<std::vector<int64_t>> Unpickler::Extents(NodeId id) {
  const Node& node = nodes_[id];
  if (node.kind != Kind::kTuple && node.kind != Kind::kList)
    return Fail(ErrorCode::kMalformed, "sizes or strides are " + Describe(node)).error();
  if (node.items.size() > kMaxRank)
    return Fail(ErrorCode::kTooLarge, fmt::format("a tensor of {} dimensions", node.items.size()))
        .error();
  MSPROBE_TRY(Spend(node.items.size() + 8));
  std::vector<int64_t> out;
  out.reserve(node.items.size());
  for (const NodeId item : node.items) {
    MSPROBE_ASSIGN(const int64_t extent, Extent(item));
    out.push_back(extent);
  }
  return out;
}

// True unless the metadata (None, or a dict of flags: conjugate, negative) say nothing.
bool Unpickler::HasMetadata(NodeId id) const {
  const Node& node = nodes_[id];
  if (node.kind == Kind::kNone) return false;
  if (node.kind != Kind::kDict) return true;
  for (size_t i = 1; i < node.items.size(); i += 2) {
    const Node& value = nodes_[node.items[i]];
    if (value.kind != Kind::kBool || value.number != 0) return true;
  }
  return false;
}

Result<DType> Unpickler::TensorDType(const PickledStorage& storage,
                                     std::optional<NodeId> dtype) const {
  if (!storage.known) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("storage class {} is not known", VisibleText(storage.class_name)))
        .error();
  }
  if (!dtype) {
    if (!storage.dtype)
      return Fail(ErrorCode::kMalformed, "a tensor without an element type").error();
    return *storage.dtype;
  }
  const Node& node = nodes_[*dtype];
  if (node.kind != Kind::kGlobal)
    return Fail(ErrorCode::kMalformed, "an element type is " + Describe(node)).error();
  const auto found = node.text.starts_with("torch.") ? DTypeFromTorchName(node.text) : std::nullopt;
  if (!found) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("element type {} is not read", VisibleText(node.text)))
        .error();
  }
  return *found;
}

// _rebuild_tensor(storage, offset, size, stride)
// _rebuild_tensor_v2(…, requires_grad, hooks[, metadata])
// _rebuild_tensor_v3(…, requires_grad, hooks, dtype[, metadata])
Status Unpickler::Rebuild(std::string_view name, const std::vector<NodeId>& args) {
  const size_t least = name.ends_with("_v3") ? 7 : name.ends_with("_v2") ? 6 : 4;
  const Node* const storage = At(args, 0, Kind::kStorage);
  if (storage == nullptr || args.size() < least || args.size() > least + (least == 4 ? 0 : 1))
    return Fail(ErrorCode::kMalformed,
                fmt::format("{} with the wrong arguments", AfterLastDot(name)));
  PickledTensor tensor;
  tensor.storage = static_cast<uint32_t>(storage->number);
  const auto dtype = least == 7 ? std::optional(args[6]) : std::nullopt;
  MSPROBE_ASSIGN(tensor.dtype, TensorDType(storages_[tensor.storage], dtype));
  MSPROBE_ASSIGN(tensor.offset, Extent(args[1]));
  MSPROBE_ASSIGN(tensor.shape, Extents(args[2]));
  MSPROBE_ASSIGN(tensor.strides, Extents(args[3]));
  if (tensor.shape.size() != tensor.strides.size())
    return Fail(ErrorCode::kMalformed, "a tensor with more sizes than strides, or fewer");
  if (least > 4) {
    const Node* const grad = At(args, 4, Kind::kBool);
    if (grad == nullptr) return Fail(ErrorCode::kMalformed, "requires_grad is no bool");
    tensor.requires_grad = grad->number != 0;
  }
  if (least > 4 && args.size() > least && HasMetadata(args[least]))
    return Fail(ErrorCode::kUnsupported, "a conjugate or negative view");
  tensors_.push_back(std::move(tensor));
  return PushNumber(Kind::kTensor, static_cast<int64_t>(tensors_.size() - 1));
}

// _rebuild_parameter[_with_state](tensor, requires_grad, hooks[, state])
Status Unpickler::RebuildParameter(const std::vector<NodeId>& args) {
  const Node* const data = At(args, 0, Kind::kTensor);
  const Node* const grad = At(args, 1, Kind::kBool);
  if (data == nullptr || grad == nullptr)
    return Fail(ErrorCode::kMalformed, "a parameter without a tensor");
  PickledTensor tensor = tensors_[static_cast<size_t>(data->number)];
  MSPROBE_TRY(Spend(2 * tensor.shape.size() + 16));
  tensor.requires_grad = grad->number != 0;
  tensors_.push_back(std::move(tensor));
  return PushNumber(Kind::kTensor, static_cast<int64_t>(tensors_.size() - 1));
}

// _rebuild_from_type_v2(function, type, arguments, state): tensors that carry Python attributes.
Status Unpickler::RebuildFromType(const std::vector<NodeId>& args, int depth) {
  const Node* const function = At(args, 0, Kind::kGlobal);
  const Node* const type = At(args, 1, Kind::kGlobal);
  const Node* const list = At(args, 2, Kind::kTuple);
  if (function == nullptr || type == nullptr || list == nullptr || depth > 0)
    return Fail(ErrorCode::kMalformed, "_rebuild_from_type_v2 with the wrong arguments");
  if (std::find(kPlainTypes.begin(), kPlainTypes.end(), type->text) == kPlainTypes.end()) {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("holds a tensor subclass ({}), which is not read", VisibleText(type->text)));
  }
  const std::vector<NodeId> inner = list->items;
  return Call(function->text, inner, depth + 1);
}

// OrderedDict() or OrderedDict([[key, value], …])
Status Unpickler::OrderedDict(const std::vector<NodeId>& args) {
  Node dict{.kind = Kind::kDict};
  if (!args.empty()) {
    if (At(args, 0, Kind::kList) == nullptr)
      return Fail(ErrorCode::kMalformed, "OrderedDict of no list");
    MSPROBE_TRY(Spend(2 * nodes_[args[0]].items.size()));
    for (const NodeId pair : nodes_[args[0]].items) {
      if (nodes_[pair].items.size() != 2)
        return Fail(ErrorCode::kMalformed, "OrderedDict of no pairs");
      dict.items.insert(dict.items.end(), nodes_[pair].items.begin(), nodes_[pair].items.end());
    }
  }
  return Push(std::move(dict));
}

}  // namespace msprobe::formats
