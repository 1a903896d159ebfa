#include "formats/pickle.h"

#include <fmt/format.h>

#include "base/checked.h"
#include "base/text.h"

namespace msprobe::formats {
namespace {

constexpr size_t kMaxNodes = 4'000'000;  // about 300 MB of descriptions
constexpr uint64_t kMaxMemo = 4'000'000;
constexpr size_t kMaxSpent = 16'000'000;
constexpr NodeId kNoNode = UINT32_MAX;

enum Opcode : uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kNone = 'N',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kBinFloat = 'G',
  kBinString = 'T',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kEmptyTuple = ')',
  kTuple = 't',
  kEmptyList = ']',
  kList = 'l',
  kAppend = 'a',
  kAppends = 'e',
  kEmptyDict = '}',
  kDict = 'd',
  kSetItem = 's',
  kSetItems = 'u',
  kGlobal = 'c',
  kReduce = 'R',
  kBuild = 'b',
  kBinPersId = 'Q',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kProto = 0x80,
  kNewObj = 0x81,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kBinBytes8 = 0x8e,
  kEmptySet = 0x8f,
  kAddItems = 0x90,
  kFrozenSet = 0x91,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
};

}  // namespace

Status Unpickler::Fail(ErrorCode code, std::string_view message) const {
  return Error(code, fmt::format("pickle: {}", message)).AtOffset(base_ + opcode_at_);
}

Result<NodeId> Unpickler::Run() {
  stack_.clear();
  marks_.clear();
  memo_.clear();
  for (;;) {
    opcode_at_ = reader_.position();
    const auto opcode = reader_.Read<uint8_t>();
    if (!opcode) return Fail(ErrorCode::kTruncated, "ends before its STOP").error();
    if (*opcode == kStop) break;
    MSPROBE_TRY(Step(*opcode));
  }
  if (stack_.size() != 1 || !marks_.empty())
    return Fail(ErrorCode::kMalformed, "does not end with one value").error();
  return stack_.back();
}

Status Unpickler::Step(uint8_t opcode) {
  switch (opcode) {
    case kProto:
      return Protocol();
    case kFrame:
      return Skip(8);
    case kMark:
      marks_.push_back(stack_.size());
      return {};
    case kPop:
      if (!marks_.empty() && marks_.back() == stack_.size()) return marks_.pop_back(), Status();
      MSPROBE_TRY(Pop());
      return {};
    case kPopMark:
      MSPROBE_TRY(PopToMark());
      return {};
    case kDup:
      if (stack_.empty()) return Fail(ErrorCode::kMalformed, "DUP of nothing");
      stack_.push_back(stack_.back());
      return {};
    case kGlobal:
      return Global();
    case kStackGlobal:
      return StackGlobal();
    case kBinPut:
      return MemoizeAt<uint8_t>();
    case kLongBinPut:
      return MemoizeAt<uint32_t>();
    case kMemoize:
      return Memoize(memo_.size());
    case kBinGet:
      return RecallAt<uint8_t>();
    case kLongBinGet:
      return RecallAt<uint32_t>();
    case kBinPersId:
      return Persistent();
    case kReduce:
    case kNewObj:
      return Reduce();
    case kBuild:
      return Build();
    default:
      return StepConstant(opcode);
  }
}

Status Unpickler::StepConstant(uint8_t opcode) {
  using Kind = Node::Kind;
  switch (opcode) {
    case kNone:
      return Push({});
    case kNewTrue:
      return PushNumber(Kind::kBool, 1);
    case kNewFalse:
      return PushNumber(Kind::kBool, 0);
    case kBinInt:
      return PushInt<int32_t>();
    case kBinInt1:
      return PushInt<uint8_t>();
    case kBinInt2:
      return PushInt<uint16_t>();
    case kLong1:
      return PushLong();
    case kBinFloat:
      return PushFloat();
    case kShortBinString:
    case kShortBinUnicode:
      return PushText<uint8_t>(Kind::kString);
    case kBinString:
    case kBinUnicode:
      return PushText<uint32_t>(Kind::kString);
    case kBinUnicode8:
      return PushText<uint64_t>(Kind::kString);
    case kShortBinBytes:
      return PushText<uint8_t>(Kind::kBytes);
    case kBinBytes:
      return PushText<uint32_t>(Kind::kBytes);
    case kBinBytes8:
      return PushText<uint64_t>(Kind::kBytes);
    default:
      return StepContainer(opcode);
  }
}

Status Unpickler::StepContainer(uint8_t opcode) {
  using Kind = Node::Kind;
  switch (opcode) {
    case kEmptyTuple:
      return TupleOfTop(0);
    case kTuple1:
      return TupleOfTop(1);
    case kTuple2:
      return TupleOfTop(2);
    case kTuple3:
      return TupleOfTop(3);
    case kTuple:
      return FromMark(Kind::kTuple);
    case kEmptyList:
    case kEmptySet:
      return Push({.kind = Kind::kList});
    case kList:
    case kFrozenSet:
      return FromMark(Kind::kList);
    case kAppend:
      return ExtendByTop(Kind::kList, 1);
    case kAppends:
    case kAddItems:
      return Extend(Kind::kList);
    case kEmptyDict:
      return Push({.kind = Kind::kDict});
    case kDict:
      return FromMark(Kind::kDict);
    case kSetItem:
      return ExtendByTop(Kind::kDict, 2);
    case kSetItems:
      return Extend(Kind::kDict);
    default:
      return Fail(ErrorCode::kUnsupported, fmt::format("opcode 0x{:02x} is refused", opcode));
  }
}

// ---- stack and constants
// ----------------------------------------------------------------------------------------------------

Status Unpickler::Push(Node node) {
  if (nodes_.size() >= kMaxNodes)
    return Fail(ErrorCode::kTooLarge, fmt::format("more than {} values", kMaxNodes));
  stack_.push_back(static_cast<NodeId>(nodes_.size()));
  nodes_.push_back(std::move(node));
  return {};
}

Status Unpickler::PushNumber(Node::Kind kind, int64_t value) {
  return Push({.kind = kind, .number = value});
}

template <class T>
Result<T> Unpickler::Operand() {
  const auto value = reader_.Read<T>();
  if (!value) return Fail(ErrorCode::kTruncated, "ends inside an instruction").error();
  return *value;
}

template <class T>
Status Unpickler::PushInt() {
  MSPROBE_ASSIGN(const T value, Operand<T>());
  return PushNumber(Node::Kind::kInt, value);
}

Status Unpickler::PushLong() {
  MSPROBE_ASSIGN(const uint8_t size, Operand<uint8_t>());
  const auto bytes = reader_.Take(size);
  if (!bytes) return Fail(ErrorCode::kTruncated, "ends inside a number");
  if (size > 8) return Push({.kind = Node::Kind::kOther, .text = "a large number"});
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) value |= static_cast<uint64_t>((*bytes)[i]) << (8 * i);
  if (size > 0 && size < 8 && (value >> (8 * size - 1)) != 0) value |= ~uint64_t{0} << (8 * size);
  return PushNumber(Node::Kind::kInt, static_cast<int64_t>(value));
}

Status Unpickler::PushFloat() {
  MSPROBE_TRY(Skip(8));
  return Push({.kind = Node::Kind::kFloat});
}

template <class T>
Status Unpickler::PushText(Node::Kind kind) {
  MSPROBE_ASSIGN(const T size, Operand<T>());
  const auto bytes = reader_.Take(size);
  if (!bytes) return Fail(ErrorCode::kTruncated, "ends inside a string");
  return Push({.kind = kind, .text = AsText(*bytes)});
}

Result<NodeId> Unpickler::Pop() {
  if (stack_.size() <= (marks_.empty() ? 0 : marks_.back()))
    return Fail(ErrorCode::kMalformed, "takes a value where there is none").error();
  const NodeId id = stack_.back();
  stack_.pop_back();
  return id;
}

Result<std::vector<NodeId>> Unpickler::PopToMark() {
  if (marks_.empty()) return Fail(ErrorCode::kMalformed, "a mark is missing").error();
  const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
  marks_.pop_back();
  std::vector<NodeId> items(first, stack_.end());
  stack_.erase(first, stack_.end());
  return items;
}

Status Unpickler::Skip(uint64_t n) {
  if (!reader_.Take(static_cast<size_t>(n)))
    return Fail(ErrorCode::kTruncated, "ends inside an instruction");
  return {};
}

// Recalled values can be copied again and again by a few bytes each.
Status Unpickler::Spend(size_t n) {
  spent_ += n;
  return spent_ <= kMaxSpent ? Status() : Fail(ErrorCode::kTooLarge, "expands without measure");
}

Status Unpickler::Protocol() {
  MSPROBE_ASSIGN(const uint8_t version, Operand<uint8_t>());
  if (version < 2 || version > 5)
    return Fail(ErrorCode::kUnsupported, fmt::format("protocol {}", version));
  return {};
}

// ---- containers
// -------------------------------------------------------------------------------------------------------------

Status Unpickler::TupleOfTop(size_t n) {
  std::vector<NodeId> items(n);
  for (size_t i = n; i-- > 0;) {
    MSPROBE_ASSIGN(items[i], Pop());
  }
  return Push({.kind = Node::Kind::kTuple, .items = std::move(items)});
}

Status Unpickler::FromMark(Node::Kind kind) {
  MSPROBE_ASSIGN(std::vector<NodeId> items, PopToMark());
  if (kind == Node::Kind::kDict && items.size() % 2 != 0)
    return Fail(ErrorCode::kMalformed, "a dict key without a value");
  return Push({.kind = kind, .items = std::move(items)});
}

Status Unpickler::Extend(Node::Kind kind) {
  MSPROBE_ASSIGN(const std::vector<NodeId> items, PopToMark());
  return ExtendTop(kind, items);
}

Status Unpickler::ExtendByTop(Node::Kind kind, size_t n) {
  std::vector<NodeId> items(n);
  for (size_t i = n; i-- > 0;) {
    MSPROBE_ASSIGN(items[i], Pop());
  }
  return ExtendTop(kind, items);
}

Status Unpickler::ExtendTop(Node::Kind kind, const std::vector<NodeId>& items) {
  if (stack_.size() <= (marks_.empty() ? 0 : marks_.back()) || nodes_[stack_.back()].kind != kind)
    return Fail(ErrorCode::kMalformed, "adds to what is no container of that kind");
  if (kind == Node::Kind::kDict && items.size() % 2 != 0)
    return Fail(ErrorCode::kMalformed, "a dict key without a value");
  std::vector<NodeId>& all = nodes_[stack_.back()].items;
  all.insert(all.end(), items.begin(), items.end());
  return {};
}

// ---- names and memo
// ---------------------------------------------------------------------------------------------------------

Status Unpickler::PushGlobal(std::string_view module, std::string_view name) {
  names_.push_back(fmt::format("{}.{}", module, name));
  return Push({.kind = Node::Kind::kGlobal, .text = names_.back()});
}

Status Unpickler::Global() {
  const auto module = reader_.TakeUntil('\n');
  const auto name = module ? reader_.TakeUntil('\n') : std::nullopt;
  if (!name) return Fail(ErrorCode::kTruncated, "ends inside a name");
  return PushGlobal(*module, *name);
}

Status Unpickler::StackGlobal() {
  MSPROBE_ASSIGN(const NodeId name, Pop());
  MSPROBE_ASSIGN(const NodeId module, Pop());
  if (nodes_[name].kind != Node::Kind::kString || nodes_[module].kind != Node::Kind::kString)
    return Fail(ErrorCode::kMalformed, "a name that is no string");
  return PushGlobal(nodes_[module].text, nodes_[name].text);
}

Status Unpickler::Memoize(uint64_t index) {
  if (stack_.empty()) return Fail(ErrorCode::kMalformed, "remembers a value where there is none");
  if (index >= kMaxMemo) return Fail(ErrorCode::kTooLarge, fmt::format("memo index {}", index));
  if (index >= memo_.size()) memo_.resize(static_cast<size_t>(index) + 1, kNoNode);
  memo_[static_cast<size_t>(index)] = stack_.back();
  return {};
}

template <class T>
Status Unpickler::MemoizeAt() {
  MSPROBE_ASSIGN(const T index, Operand<T>());
  return Memoize(index);
}

template <class T>
Status Unpickler::RecallAt() {
  MSPROBE_ASSIGN(const T index, Operand<T>());
  if (index >= memo_.size() || memo_[index] == kNoNode)
    return Fail(ErrorCode::kMalformed,
                fmt::format("recalls value {}, which was not remembered", index));
  stack_.push_back(memo_[index]);
  return {};
}

// ---- what is found
// ----------------------------------------------------------------------------------------------------------

std::string Describe(const Node& node) {
  const auto count = [](size_t n, std::string_view one, std::string_view many) {
    return fmt::format("{} {}", n, n == 1 ? one : many);
  };
  switch (node.kind) {
    case Node::Kind::kNone:
      return "None";
    case Node::Kind::kBool:
      return node.number != 0 ? "True" : "False";
    case Node::Kind::kInt:
      return fmt::format("the number {}", node.number);
    case Node::Kind::kFloat:
      return "a number";
    case Node::Kind::kString:
      return "a string";
    case Node::Kind::kBytes:
      return "bytes";
    case Node::Kind::kTuple:
      return fmt::format("a tuple of {}", count(node.items.size(), "element", "elements"));
    case Node::Kind::kList:
      return "a list of " + count(node.items.size(), "element", "elements");
    case Node::Kind::kDict:
      return "a dict of " + count(node.items.size() / 2, "entry", "entries");
    case Node::Kind::kGlobal:
      return VisibleText(node.text);
    case Node::Kind::kStorage:
      return "a storage";
    case Node::Kind::kTensor:
      return "a tensor";
    case Node::Kind::kOther:
      return std::string(node.text);
  }
  return "";
}

Result<std::vector<NamedTensor>> CollectTensors(const Unpickler& pickle, NodeId root) {
  constexpr size_t kMaxDepth = 100;
  constexpr size_t kMaxVisits = 8'000'000;
  constexpr size_t kMaxNameBytes = 256u << 20;
  struct Level {
    NodeId id;
    size_t next;
    size_t name_size;
  };
  const std::vector<Node>& nodes = pickle.nodes();
  std::vector<NamedTensor> found;
  std::vector<Level> levels;
  std::string name;
  size_t visits = 0;
  size_t name_bytes = 0;
  const auto visit = [&](NodeId id) {
    const Node& node = nodes[id];
    if (node.kind == Node::Kind::kTensor) {
      found.push_back({name, static_cast<uint32_t>(node.number)});
      name_bytes += name.size();
    } else if (!node.items.empty()) {
      levels.push_back({id, 0, name.size()});
    }
  };
  visit(root);
  while (!levels.empty()) {
    if (levels.size() > kMaxDepth || ++visits > kMaxVisits || name_bytes > kMaxNameBytes)
      return Error(ErrorCode::kTooLarge, "pickle: nested too deeply or too large to list");
    Level& level = levels.back();
    const Node& node = nodes[level.id];
    name.resize(level.name_size);
    if (level.next >= node.items.size()) {
      levels.pop_back();
      continue;
    }
    if (!name.empty()) name += '.';
    if (node.kind == Node::Kind::kDict) {
      const Node& key = nodes[node.items[level.next]];
      name += key.kind == Node::Kind::kString ? std::string(key.text)
              : key.kind == Node::Kind::kInt  ? fmt::format("{}", key.number)
                                              : fmt::format("#{}", level.next / 2);
      level.next += 2;
    } else {
      name += fmt::format("{}", level.next);
      level.next += 1;
    }
    visit(node.items[level.next - 1]);
  }
  return found;
}

}  // namespace msprobe::formats
