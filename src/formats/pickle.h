// A pickle machine that builds descriptions, never objects: it knows the opcodes of protocols 2 to
// 5 and a short list of callables of PyTorch; everything else is refused by name. Nothing is
// imported, called or executed.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

namespace msprobe::formats {

// A value on the stack, by its index in Unpickler::nodes(). Containers may contain themselves.
using NodeId = uint32_t;

struct Node {
  enum class Kind : uint8_t {
    kNone,
    kBool,  // number
    kInt,   // number
    kFloat,
    kString,  // text
    kBytes,
    kTuple,    // items
    kList,     // items
    kDict,     // items: key, value, key, value …
    kGlobal,   // text: "module.name"
    kStorage,  // number: index in storages()
    kTensor,   // number: index in tensors()
    kOther,    // text: what it is
  };
  Kind kind = Kind::kNone;
  int64_t number = 0;
  std::string_view text = {};
  std::vector<NodeId> items = {};
};

// ('storage', class, key, location, numel) of torch.save.
struct PickledStorage {
  std::string_view key;
  std::string_view class_name;
  std::optional<DType> dtype;  // absent: untyped (numel counts bytes), or a class that is not known
  bool known = false;
  int64_t numel = 0;      // >= 0
  int64_t bytes() const;  // checked when it was read
};

struct PickledTensor {
  uint32_t storage = 0;  // index in storages()
  DType dtype = DType::kF32;
  int64_t offset = 0;            // in elements, >= 0
  Shape shape;                   // extents >= 0
  std::vector<int64_t> strides;  // same rank, >= 0
  bool requires_grad = false;
};

class Unpickler {
 public:
  // `bytes` stay alive as long as this; they may hold more than one pickle. `base`: their offset in
  // the file, for errors.
  Unpickler(Bytes bytes, uint64_t base) : reader_(bytes), base_(base) {}

  // One pickle, from the current position to its STOP. Errors: kTruncated, kMalformed,
  // kUnsupported, kTooLarge, with offset.
  Result<NodeId> Run();

  size_t position() const { return reader_.position(); }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<PickledStorage>& storages() const { return storages_; }
  const std::vector<PickledTensor>& tensors() const { return tensors_; }

 private:
  Status Step(uint8_t opcode);
  Status StepConstant(uint8_t opcode);
  Status StepContainer(uint8_t opcode);
  Status Fail(ErrorCode code, std::string_view message) const;
  Status Push(Node node);
  Status PushNumber(Node::Kind kind, int64_t value);
  template <class T>
  Status PushInt();
  template <class T>
  Status PushText(Node::Kind kind);
  template <class T>
  Result<T> Operand();
  Status PushLong();
  Status PushFloat();
  Result<NodeId> Pop();
  Result<std::vector<NodeId>> PopToMark();
  Status Skip(uint64_t n);
  Status Spend(size_t n);
  Status Protocol();
  Status TupleOfTop(size_t n);
  Status FromMark(Node::Kind kind);
  Status Extend(Node::Kind kind);
  Status ExtendByTop(Node::Kind kind, size_t n);
  Status ExtendTop(Node::Kind kind, const std::vector<NodeId>& items);
  Status PushGlobal(std::string_view module, std::string_view name);
  Status Global();
  Status StackGlobal();
  Status Memoize(uint64_t index);
  template <class T>
  Status MemoizeAt();
  template <class T>
  Status RecallAt();
  Status Persistent();
  Status Reduce();
  Status Build();
  Status Call(std::string_view name, const std::vector<NodeId>& args, int depth);
  Status Rebuild(std::string_view name, const std::vector<NodeId>& args);
  Status RebuildParameter(const std::vector<NodeId>& args);
  Status RebuildFromType(const std::vector<NodeId>& args, int depth);
  Status OrderedDict(const std::vector<NodeId>& args);
  Result<DType> TensorDType(const PickledStorage& storage, std::optional<NodeId> dtype) const;
  Result<int64_t> Extent(NodeId id) const;
  Result<std::vector<int64_t>> Extents(NodeId id);
  bool HasMetadata(NodeId id) const;
  const Node* At(const std::vector<NodeId>& ids, size_t i, Node::Kind kind) const;

  ByteReader reader_;
  uint64_t base_;
  size_t opcode_at_ = 0;
  size_t spent_ = 0;  // items copied beyond what the bytes themselves hold
  std::vector<Node> nodes_;
  std::vector<NodeId> stack_;
  std::vector<size_t> marks_;
  std::vector<NodeId> memo_;
  std::deque<std::string> names_;
  std::vector<PickledStorage> storages_;
  std::vector<PickledTensor> tensors_;
};

// "a dict of 3 entries", "a string", …
std::string Describe(const Node& node);

struct NamedTensor {
  std::string name;  // keys and indices from the root, joined by '.'
  uint32_t tensor;   // index in tensors()
};
// The tensors below `root`, in order. kTooLarge for structures of unreasonable depth or size.
Result<std::vector<NamedTensor>> CollectTensors(const Unpickler& pickle, NodeId root);

}  // namespace msprobe::formats
