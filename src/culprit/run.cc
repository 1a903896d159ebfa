#include "culprit/run.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

#include "base/file.h"
#include "culprit/tensors.h"
#include "dump/reader.h"
#include "json/json.h"
#include "metrics/tensor_stats.h"

namespace msprobe::culprit {

using json::Value;

namespace {

constexpr int kMaxDepth = 64;

bool IsDigits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Cuts the last part off; "" when there is no dot.
std::string_view CutLast(std::string_view& text) {
  const size_t dot = text.rfind('.');
  if (dot == std::string_view::npos) return {};
  const std::string_view last = text.substr(dot + 1);
  text = text.substr(0, dot);
  return last;
}

std::string_view LastOf(std::string_view text) {
  const size_t dot = text.rfind('.');
  return dot == std::string_view::npos ? text : text.substr(dot + 1);
}

NameParts ModuleParts(std::string_view name) {
  NameParts out;
  std::string_view rest = name;
  std::string_view last = CutLast(rest);
  const bool numbered = IsDigits(last);
  const std::string_view direction = numbered ? CutLast(rest) : last;
  if (direction == "forward") {
    out.kind = Kind::kModuleForward;
  } else if (direction == "backward") {
    out.kind = Kind::kModuleBackward;
  } else if (direction == "parameters_grad") {
    out.kind = Kind::kParameterGrad;
  } else {
    return out;
  }
  out.base = out.api = rest;
  out.last = LastOf(rest);
  return out;
}

double NumberOf(const Value* v) {
  if (v == nullptr) return kUnknown;
  if (v->is_number()) return v->as_double();
  if (v->is_bool()) return v->as_bool() ? 1 : 0;
  if (!v->is_string()) return kUnknown;
  const std::string_view text = v->as_string();
  if (text == "inf" || text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-inf" || text == "-Infinity") return -std::numeric_limits<double>::infinity();
  double out = kUnknown;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

std::optional<uint64_t> HexOf(const Value* v) {
  if (v == nullptr || !v->is_string() || v->as_string().size() > 16) return std::nullopt;
  const std::string_view text = v->as_string();
  uint64_t out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out, 16);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return out;
}

uint64_t Mix(uint64_t x) {  // the finaliser of SplitMix64 (Steele, Lea & Flood 2014)
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

NameParts PartsOf(std::string_view name) {
  if (name.starts_with("Module.") || name.starts_with("Cell.")) return ModuleParts(name);
  NameParts out;
  std::string_view rest = name;
  const std::string_view direction = CutLast(rest);
  if (direction != "forward" && direction != "backward") return out;
  out.base = rest;
  if (!IsDigits(CutLast(rest)) || rest.find('.') == std::string_view::npos) return out;
  out.kind = direction == "forward" ? Kind::kApiForward : Kind::kApiBackward;
  out.api = rest;
  out.last = LastOf(rest);
  return out;
}

uint32_t Run::Find(std::string_view entry) const {
  const auto it = by_name.find(entry);
  return it == by_name.end() ? kNowhere : it->second;
}

const Leaf* Run::FindLeaf(uint32_t entry, Role role, std::string_view name) const {
  const Entry& e = entries[entry];
  for (uint32_t i = e.first; i < e.first + e.count; ++i) {
    if (leaves[i].role == role && leaves[i].name == name) return &leaves[i];
  }
  return nullptr;
}

class RunReader {
 public:
  explicit RunReader(Run& run) : run_(run) {}

  void Add(std::string_view name, const Value& value) {
    // A repeated name keeps its last content.
    if (const auto known = names_.find(std::string(name)); known != names_.end()) {
      run_.entries[known->second].name.clear();
    }
    Entry entry;
    entry.name = name;
    entry.first = static_cast<uint32_t>(run_.leaves.size());
    if (value.is_object()) Members(entry, value);
    entry.count = static_cast<uint32_t>(run_.leaves.size()) - entry.first;
    names_[entry.name] = run_.entries.size();
    run_.entries.push_back(std::move(entry));
  }

  // Views into names are made when nothing moves any more.
  void Finish() {
    std::erase_if(run_.entries, [](const Entry& e) { return e.name.empty(); });
    run_.by_name.reserve(run_.entries.size());
    for (uint32_t i = 0; i < run_.entries.size(); ++i) {
      Entry& e = run_.entries[i];
      const NameParts parts = PartsOf(e.name);
      e.kind = parts.kind;
      e.base = parts.base;
      e.api = parts.api;
      e.last = parts.last;
      run_.by_name.emplace(e.name, i);
      if (e.kind != Kind::kApiForward) continue;
      for (uint32_t k = e.first; k < e.first + e.count; ++k) {
        if (run_.leaves[k].role == Role::kOutput) run_.sixteen |= run_.leaves[k].sixteen;
      }
    }
  }

 private:
  std::string_view Intern(std::string_view text) { return *run_.pool_.emplace(text).first; }

  void Members(Entry& entry, const Value& value) {
    for (const Value::Member* m = value.members_begin(); m != value.members_end(); ++m) {
      const std::string_view key = m->key;
      if (key == "input_args" || key == "input" || key == "args" || key == "grad_input") {
        Walk(m->value, "input", Role::kInput, 0);
      } else if (key == "input_kwargs" || key == "kwargs") {
        Walk(m->value, "input", Role::kInput, 0);
      } else if (key == "output" || key == "grad_output") {
        Walk(m->value, "output", Role::kOutput, 0);
      } else if (key == "parameters") {
        Walk(m->value, "parameters", Role::kParameter, 0);
      } else if (key == "mutated") {
        Mutated(m->value);
      } else if (key == "layout") {
        entry.arguments_layout = m->value.is_string() && m->value.as_string() == "arguments";
      } else if (m->value.is_array() && entry.name.find("parameters_grad") != std::string::npos) {
        for (const Value& v : m->value) Walk(v, std::string(key), Role::kOutput, 1);
      }
    }
  }

  void Mutated(const Value& value) {
    if (!value.is_object()) return;
    for (const Value::Member* m = value.members_begin(); m != value.members_end(); ++m) {
      Walk(m->value, std::string(m->key), Role::kMutated, 1);
    }
  }

  void Walk(const Value& value, const std::string& name, Role role, int depth) {
    if (depth > kMaxDepth) return;
    if (value.is_array()) {
      for (size_t i = 0; i < value.size(); ++i) {
        Walk(value[i], name + "." + std::to_string(i), role, depth + 1);
      }
      return;
    }
    if (value.is_object() && value.Find("type") == nullptr && value.Find("same_as") == nullptr) {
      for (const Value::Member* m = value.members_begin(); m != value.members_end(); ++m) {
        Walk(m->value, name + "." + std::string(m->key), role, depth + 1);
      }
      return;
    }
    Leaf leaf;
    leaf.name = name;
    leaf.role = role;
    if (value.is_object()) {
      if (value.Find("same_as") != nullptr) return;
      Fill(leaf, value);
    } else if (!value.is_null()) {
      Scalar(leaf, value);
    }
    run_.leaves.push_back(std::move(leaf));
  }

  static void Scalar(Leaf& leaf, const Value& v) {
    leaf.kind = v.is_number() || v.is_bool() ? LeafKind::kNumber : LeafKind::kText;
    leaf.number = NumberOf(&v);
    leaf.text = json::PyStr(v);
  }

  void Fill(Leaf& leaf, const Value& v) {
    const Value* type = v.Find("type");
    leaf.type =
        type != nullptr && type->is_string() ? Intern(type->as_string()) : std::string_view();
    const Value* dtype = v.Find("dtype");
    const Value* shape = v.Find("shape");
    if (dtype != nullptr && dtype->is_string() && shape != nullptr && shape->is_array()) {
      return Tensor(leaf, v, dtype->as_string(), *shape);
    }
    const Value* value = v.Find("value");
    leaf.kind = LeafKind::kOpaque;
    if (leaf.type == "torch.distributed.ReduceOp" || leaf.type == "torch.ProcessGroup")
      return Communication(leaf, v);
    static constexpr std::string_view kCompared[] = {"bool",    "int",   "float",      "str",
                                                     "complex", "slice", "torch.Size", "ellipsis"};
    if (value == nullptr ||
        std::find(std::begin(kCompared), std::end(kCompared), leaf.type) == std::end(kCompared)) {
      if (value != nullptr && leaf.type == "torch.dtype") leaf.text = json::PyStr(*value);
      return;
    }
    Scalar(leaf, *value);
    if (leaf.type == "str" || !(value->is_number() || value->is_bool()))
      leaf.kind = LeafKind::kText;
    if (leaf.type == "float") {
      leaf.kind = LeafKind::kNumber;
      leaf.number = NumberOf(value);
    }
  }

  // Operations are written as "RedOpType.SUM" or "ReduceOp.SUM"; groups by their ranks.
  static void Communication(Leaf& leaf, const Value& v) {
    const bool group = leaf.type == "torch.ProcessGroup";
    const Value* told = v.Find(group ? "group_ranks" : "value");
    if (told == nullptr || !(group ? told->is_array() : told->is_string())) return;
    leaf.kind = LeafKind::kText;
    leaf.text = json::PyStr(*told);
    if (!group) leaf.text = std::string(LastOf(leaf.text));
  }

  void Tensor(Leaf& leaf, const Value& v, std::string_view dtype, const Value& shape) {
    leaf.kind = LeafKind::kTensor;
    leaf.dtype = Intern(dtype);
    const std::optional<DType> known = DTypeFromTorchName(dtype);
    leaf.floating = known && !IsExact(*known);
    leaf.sixteen = known && IsFloat(*known) && ItemSize(*known) <= 2;
    for (const Value& n : shape) {
      if (!n.is_int()) {
        ++run_.malformed;
        leaf.kind = LeafKind::kOpaque;
        return;
      }
      leaf.shape.push_back(n.as_int());
    }
    const std::optional<int64_t> elements = NumElements(leaf.shape);
    if (!elements) {
      ++run_.malformed;
      leaf.kind = LeafKind::kOpaque;
      return;
    }
    leaf.elements = *elements;
    leaf.max = NumberOf(v.Find("Max"));
    leaf.min = NumberOf(v.Find("Min"));
    leaf.mean = NumberOf(v.Find("Mean"));
    leaf.norm = NumberOf(v.Find("Norm"));
    run_.has_statistics |= !std::isnan(leaf.max);
    if (const Value* n = v.Find("nan"); n != nullptr && n->is_int()) leaf.nan = n->as_int();
    if (const Value* n = v.Find("inf"); n != nullptr && n->is_int()) leaf.inf = n->as_int();
    if (const Value* r = v.Find("requires_grad"); r != nullptr && r->is_bool())
      leaf.requires_grad = r->as_bool() ? 1 : 0;
    if (const Value* d = v.Find("data_name");
        d != nullptr && d->is_string() && d->as_string() != "-1") {
      leaf.data_name = d->as_string();
      run_.has_files = true;
    }
    if (const auto hash = HexOf(v.Find("hash64"))) {
      leaf.key = *hash;
      leaf.has_key = run_.has_hash64 = true;
    } else if (const Value* md5 = v.Find("md5"); md5 != nullptr && md5->is_string()) {
      leaf.text = md5->as_string();
    }
    if (auto sketch = metrics::ReadSketch(v); !sketch.ok()) {
      ++run_.malformed;
    } else if (sketch->has_value()) {
      leaf.sketch = static_cast<uint32_t>(run_.sketches.size());
      run_.sketches.push_back(std::move(**sketch));
      run_.has_sketches = true;
    }
    const Value* derived = v.Find("derived");
    leaf.derived = derived != nullptr && derived->is_bool() && derived->as_bool();
    if (const Value* from = v.Find("from"); from != nullptr && from->is_object()) From(leaf, *from);
  }

  void From(Leaf& leaf, const Value& from) {
    const Value* entry = from.Find("entry");
    const Value* name = from.Find("leaf");
    if (entry == nullptr || !entry->is_string() || name == nullptr || !name->is_string()) return;
    Origin origin;
    origin.entry = entry->as_string();
    origin.leaf = name->as_string();
    origin.earlier_step = from.Find("step") != nullptr;
    origin.written = from.Find("writes") != nullptr;
    if (const Value* view = from.Find("view"); view != nullptr && view->is_object()) {
      json::Writer(origin.view).Copy(*view);
      const Value* strides = view->Find("strides");
      if (strides != nullptr && strides->is_array()) {
        for (const Value& s : *strides) origin.repeats |= s.is_int() && s.as_int() == 0;
      }
    }
    leaf.origin = static_cast<uint32_t>(run_.origins.size());
    run_.origins.push_back(std::move(origin));
  }

  Run& run_;
  std::unordered_map<std::string, size_t> names_;
};

std::string CodeOf(const std::vector<std::string>& stack) {
  static constexpr std::string_view kLibraries[] = {"/site-packages/", "/dist-packages/",
                                                    "/lib/python"};
  for (const std::string& frame : stack) {
    // "File PATH, line N, in f, \n code"
    if (!frame.starts_with("File ")) continue;
    const size_t comma = frame.find(", line ");
    if (comma == std::string::npos) continue;
    const std::string path = frame.substr(5, comma - 5);
    if (std::any_of(std::begin(kLibraries), std::end(kLibraries),
                    [&](std::string_view l) { return path.find(l) != std::string::npos; })) {
      continue;
    }
    size_t end = comma + 7;
    while (end < frame.size() && frame[end] >= '0' && frame[end] <= '9') ++end;
    return path + ":" + frame.substr(comma + 7, end - comma - 7);
  }
  return {};
}

namespace {

int64_t StepOf(std::string path) {
  constexpr std::string_view kStep = "step";
  for (int parents = 0; parents < 3; ++parents) {
    const std::string name(BaseName(path));
    int64_t step = 0;
    if (name.starts_with(kStep)) {
      const char* end = name.data() + name.size();
      const auto [at, error] = std::from_chars(name.data() + kStep.size(), end, step);
      if (error == std::errc() && at == end) return step;
    }
    path = DirName(path);
  }
  return 0;
}

}  // namespace

Result<std::unique_ptr<Run>> ReadRun(const std::string& dump_json, std::string_view prefix) {
  auto run = std::make_unique<Run>();
  run->path = dump_json;
  RunReader reader(*run);
  MSPROBE_ASSIGN(const dump::ReadInfo info,
                 dump::ReadDump(dump_json, [&](std::string_view name, const Value& value) {
                   if (name.starts_with(prefix)) reader.Add(name, value);
                   return true;
                 }));
  run->torn = info.torn;
  run->step = StepOf(dump_json);
  if (run->has_files) run->folder = JoinPath(DirName(dump_json), "dump_tensor_data");
  reader.Finish();
  if (!prefix.empty()) return run;
  const std::string construct = JoinPath(DirName(dump_json), "construct.json");
  if (PathExists(construct)) {
    if (auto parents = dump::ReadConstruct(construct); parents.ok()) {
      for (Entry& e : run->entries) {
        if (const auto it = parents->find(e.name); it != parents->end()) e.parent = it->second;
      }
    }
  }
  const std::string stacks = JoinPath(DirName(dump_json), "stack.json");
  if (PathExists(stacks)) {
    if (auto table = dump::ReadStack(stacks); table.ok()) {
      std::vector<std::string> code(table->stacks.size());
      for (size_t i = 0; i < code.size(); ++i) code[i] = CodeOf(table->stacks[i]);
      for (const auto& [name, index] : table->of_entry) {
        if (index < code.size() && !code[index].empty()) run->code.emplace(name, code[index]);
      }
    }
  }
  return run;
}

namespace {

void ClearKeys(Run& run) {
  for (Leaf& leaf : run.leaves) leaf.has_key = false;
}

void KeysOfFiles(Run& run) {
  for (Leaf& leaf : run.leaves) {
    if (leaf.kind != LeafKind::kTensor) continue;
    leaf.has_key = false;
    if (leaf.data_name.empty()) continue;
    const Result<Tensor> tensor = ReadTensor(run, leaf);
    if (!tensor.ok()) continue;
    leaf.key = metrics::Hash64Of(tensor->view());
    leaf.has_key = true;
  }
}

void KeysOfStatistics(Run& run) {
  for (Leaf& leaf : run.leaves) {
    leaf.has_key = false;
    if (leaf.kind != LeafKind::kTensor || std::isnan(leaf.max) || std::isnan(leaf.norm)) continue;
    uint64_t key = 0;
    for (const double v : {leaf.max, leaf.min, leaf.mean, leaf.norm}) {
      key = Mix(key + 0x9E3779B97F4A7C15u + std::bit_cast<uint64_t>(v));
    }
    leaf.key = key;
    leaf.has_key = true;
  }
}

bool KeysOfChecksums(Run& run) {
  bool any = false;
  for (Leaf& leaf : run.leaves) {
    leaf.has_key = false;
    if (leaf.kind != LeafKind::kTensor || leaf.text.empty()) continue;
    leaf.key = Mix(std::hash<std::string>()(leaf.text));
    leaf.has_key = any = true;
  }
  return any;
}

// Type and number of elements are part of the content.
void AddKinds(Run& run) {
  for (Leaf& leaf : run.leaves) {
    if (!leaf.has_key) continue;
    leaf.key = Mix(leaf.key ^ Mix(static_cast<uint64_t>(leaf.elements)) ^
                   std::hash<std::string_view>()(leaf.dtype));
  }
}

}  // namespace

void FillKeys(Run& run) {
  if (!run.has_hash64) KeysOfFiles(run);
  AddKinds(run);
}

KeyKind FillKeys(Run& target, Run& golden) {
  KeyKind kind = KeyKind::kNone;
  if (target.has_hash64 && golden.has_hash64) {
    kind = KeyKind::kHash64;
  } else if (target.has_files && golden.has_files) {
    kind = KeyKind::kHash64;
    KeysOfFiles(target);
    KeysOfFiles(golden);
  } else if (target.has_statistics && golden.has_statistics) {
    kind = KeyKind::kStatistics;
    KeysOfStatistics(target);
    KeysOfStatistics(golden);
  } else if (KeysOfChecksums(target) && KeysOfChecksums(golden)) {
    kind = KeyKind::kChecksum;
  } else {
    ClearKeys(target);
    ClearKeys(golden);
  }
  AddKinds(target);
  AddKinds(golden);
  return kind;
}

}  // namespace msprobe::culprit
