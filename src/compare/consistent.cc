#include "compare/consistent.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "formats/tensor_file.h"

namespace msprobe::compare {
namespace {

using Word = std::pair<std::string_view, std::string_view>;

// Training words to inference words.
constexpr std::array<Word, 5> kFsdpWords = {Word{"q_proj", "qkv_proj"},
                                            {"k_proj", "qkv_proj"},
                                            {"v_proj", "qkv_proj"},
                                            {"gate_proj", "gate_up_proj"},
                                            {"up_proj", "gate_up_proj"}};
constexpr std::array<Word, 10> kMegatronWords = {Word{"word_embeddings", "embed_tokens"},
                                                 {"self_attention", "self_attn"},
                                                 {"linear_qkv", "qkv_proj"},
                                                 {"q_layernorm", "q_norm"},
                                                 {"k_layernorm", "k_norm"},
                                                 {"core_attention", "attn"},
                                                 {"linear_proj", "o_proj"},
                                                 {"router", "gate"},
                                                 {"linear_fc1", "gate_up_proj"},
                                                 {"linear_fc2", "down_proj"}};

constexpr std::array<std::string_view, 3> kFsdpTops = {"Qwen2Model", "Qwen3Model", "Qwen3MoeModel"};
constexpr std::array<std::string_view, 1> kMegatronTops = {"GPTModel"};

std::string_view Translated(std::string_view word, Backend backend) {
  const auto find = [&](const auto& table) {
    for (const auto& [training, inference] : table) {
      if (word == training) return inference;
    }
    return word;
  };
  return backend == Backend::kFsdp ? find(kFsdpWords) : find(kMegatronWords);
}

std::string_view LastPart(std::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

// The text after the first `layers.<n>.`; sets `layer`. nullopt without one.
std::optional<std::string_view> AfterLayer(std::string_view name, int64_t& layer) {
  constexpr std::string_view kLayers = "layers.";
  for (size_t k = name.find(kLayers); k != std::string_view::npos;
       k = name.find(kLayers, k + kLayers.size())) {
    const std::string_view rest = name.substr(k + kLayers.size());
    int64_t number = 0;
    const auto [end, failed] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (failed != std::errc() || number < 0) continue;
    layer = number;
    const auto used = static_cast<size_t>(end - rest.data());
    return used < rest.size() && rest[used] == '.' ? rest.substr(used + 1) : rest.substr(used);
  }
  return std::nullopt;
}

std::string_view CutFront(std::string_view text, std::string_view upto, bool last) {
  const size_t k = last ? text.rfind(upto) : text.find(upto);
  return k == std::string_view::npos ? text : text.substr(k + upto.size());
}

// Entries that stand in the forward passes only.
class Passes {
 public:
  explicit Passes(Backend backend) : backend_(backend) {}
  // Entries in file order; whether this one counts.
  bool Counts(const NameParts& parts) {
    const std::string_view cls = LastPart(parts.base);
    if (parts.direction == Direction::kBackward && IsTop(cls)) between_ = true;
    const std::string_view first =
        backend_ == Backend::kFsdp ? "Embedding" : "VocabParallelEmbedding";
    if (parts.direction == Direction::kForward && cls == first) between_ = false;
    return !between_;
  }

 private:
  bool IsTop(std::string_view cls) const {
    const auto in = [&](const auto& list) {
      return std::find(list.begin(), list.end(), cls) != list.end();
    };
    return backend_ == Backend::kFsdp ? in(kFsdpTops) : in(kMegatronTops);
  }
  Backend backend_;
  bool between_ = false;
};

struct Keyed {
  std::string key;  // that of its partners
  const Leaf* leaf = nullptr;
};

std::vector<Keyed> KeysOf(const Side& side, const Options& options, bool training,
                          uint64_t& left_out) {
  std::vector<Keyed> out;
  Passes passes(options.backend);
  std::map<std::string, uint64_t> calls;  // forward calls of a training module, counted anew
  for (const Entry& entry : side.entries) {
    const NameParts parts = ParseEntryName(entry.name);
    if (training && !passes.Counts(parts)) {
      ++left_out;
      continue;
    }
    std::string call(parts.call);
    if (training && parts.direction == Direction::kForward) {
      call = std::to_string(calls[std::string(parts.base)]++);
    }
    const ModulePlace place = PlaceOf(parts.base, options.backend, training);
    const std::string head =
        fmt::format("{} {} {} {}", static_cast<int>(parts.direction), call, place.layer, place.key);
    for (size_t i = entry.first; i < entry.first + entry.count; ++i) {
      const Leaf& leaf = side.leaves[i];
      const std::string_view suffix = leaf.name.starts_with(entry.name)
                                          ? leaf.name.substr(entry.name.size())
                                          : std::string_view(leaf.name);
      out.push_back({fmt::format("{} {}", head, suffix), &leaf});
    }
  }
  return out;
}

std::string CellText(const CellValue& v) {
  switch (v.kind()) {
    case CellValue::Kind::kDouble:
      return PyFloatRepr(v.as_double());
    case CellValue::Kind::kInt:
      return std::to_string(v.as_int());
    case CellValue::Kind::kBool:
      return v.as_bool() ? "True" : "False";
    case CellValue::Kind::kNone:
      return "None";
    case CellValue::Kind::kUnknown:
      return "N/A";
    default:
      return std::string(v.text());
  }
}

std::optional<double> NumberOf(const CellValue& v) {
  if (v.kind() == CellValue::Kind::kDouble) return v.as_double();
  if (v.kind() == CellValue::Kind::kInt) return static_cast<double>(v.as_int());
  return std::nullopt;
}

// The larger (or smaller) of two extremes; what is no number gives way.
CellValue Extreme(const CellValue& a, const CellValue& b, bool largest) {
  const std::optional<double> x = NumberOf(a), y = NumberOf(b);
  if (!x || !y) return x ? a : b;
  return (largest ? *y > *x : *y < *x) ? b : a;
}

// Many leaves as one, in the words of the report.
Leaf Merge(const std::vector<const Leaf*>& parts, std::string_view join, Arena& arena) {
  Leaf out = *parts.front();
  const auto joined = [&](std::string_view between, const auto& text) {
    std::string all;
    for (const Leaf* part : parts) {
      if (part != parts.front()) all += between;
      all += text(*part);
    }
    return arena.Copy(all);
  };
  out.name = joined(join, [](const Leaf& l) { return l.name; });
  out.dtype = joined(";", [](const Leaf& l) { return l.dtype; });
  out.shape = joined(";", [](const Leaf& l) { return l.shape; });
  const bool files =
      std::all_of(parts.begin(), parts.end(), [](const Leaf* l) { return !l->data_name.empty(); });
  out.data_name =
      files ? joined(";", [](const Leaf& l) { return l.data_name; }) : std::string_view();
  out.mean = CellValue::Text(joined(";", [](const Leaf& l) { return CellText(l.mean); }));
  out.norm = CellValue::Text(joined(";", [](const Leaf& l) { return CellText(l.norm); }));
  for (const Leaf* part : parts) {
    out.max = Extreme(out.max, part->max, true);
    out.min = Extreme(out.min, part->min, false);
    if (part->requires_grad != out.requires_grad) out.requires_grad = Leaf::Grad::kUnknown;
  }
  return out;
}

}  // namespace

ModulePlace PlaceOf(std::string_view base, Backend backend, bool training) {
  ModulePlace out;
  std::string_view path = base;
  const std::optional<std::string_view> inside = AfterLayer(base, out.layer);
  if (training && backend == Backend::kFsdp) {
    path = CutFront(base, "_fsdp_wrapped_module.", true);
  } else {
    path = inside.value_or(base);
    if (training) {
      path = CutFront(path, "module.module.", false);
    } else if (path.starts_with("Module.model.")) {
      path.remove_prefix(std::string_view("Module.model.").size());
    }
  }
  const size_t dot = path.rfind('.');  // before the class
  std::string_view module =
      dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
  if (!training && backend == Backend::kFsdp) {
    out.key = LastPart(module);
    return out;
  }
  if (const size_t first = module.find('.'); first != std::string_view::npos) {
    module.remove_prefix(first + 1);
  }
  while (!module.empty()) {
    const size_t end = std::min(module.find('.'), module.size());
    if (!out.key.empty()) out.key += '.';
    out.key += training ? Translated(module.substr(0, end), backend) : module.substr(0, end);
    module.remove_prefix(std::min(end + 1, module.size()));
  }
  return out;
}

std::vector<Row> ConsistentRows(Side& target, Side& golden, const Options& options,
                                std::vector<std::string>& notes) {
  uint64_t left_out = 0;
  const std::vector<Keyed> t = KeysOf(target, options, true, left_out);
  const std::vector<Keyed> g = KeysOf(golden, options, false, left_out);
  if (left_out > 0) {
    notes.push_back(fmt::format(
        "{} training entries between a backward pass and the next forward pass are left out",
        left_out));
  }
  std::map<std::string_view, std::vector<const Leaf*>> targets, goldens;
  for (const Keyed& k : t) targets[k.key].push_back(k.leaf);
  for (const Keyed& k : g) goldens[k.key].push_back(k.leaf);
  const bool merge_targets = options.backend == Backend::kFsdp;
  const auto merged = [&](Side& side, const std::vector<const Leaf*>& parts) {
    if (parts.size() == 1) return parts.front();
    side.merged.push_back(Merge(parts, options.name_join, side.arena));
    return static_cast<const Leaf*>(&side.merged.back());
  };
  std::vector<Row> rows;
  std::map<std::string_view, size_t> used;  // rows of a key so far
  for (const Keyed& k : t) {
    const auto partner = goldens.find(k.key);
    const size_t nth = used[k.key]++;
    Row row;
    row.target = k.leaf;
    if (partner != goldens.end()) {
      if (merge_targets) {
        if (nth > 0) continue;  // inside the first one's leaf
        row.target = merged(target, targets[k.key]);
        row.golden = partner->second.front();
      } else if (nth == 0) {
        row.golden = merged(golden, partner->second);
      }
    }
    row.merged = row.target != k.leaf || (row.golden != nullptr && partner->second.size() > 1);
    if (row.golden == nullptr) {
      row.gate = Gate::kNoGoldenRow;
      row.grad_consistent = false;
    } else {
      row.grad_consistent = row.target->requires_grad == row.golden->requires_grad;
    }
    row.first_of_entry = rows.empty() || rows.back().target->entry != row.target->entry;
    rows.push_back(std::move(row));
  }
  std::map<std::string_view, size_t> seen;
  for (const Keyed& k : g) {
    const bool paired = targets.contains(k.key) && (!merge_targets || seen[k.key]++ == 0);
    if (paired) continue;
    Row row;
    row.golden = k.leaf;
    row.gate = Gate::kNoTargetRow;
    row.grad_consistent = false;
    rows.push_back(std::move(row));
  }
  return rows;
}

namespace {

struct Part {
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<std::byte> bytes;
};

Result<Part> ReadPart(const std::string& path) {
  MSPROBE_ASSIGN(const formats::TensorFile file, formats::TensorFile::Open(path));
  MSPROBE_ASSIGN(const formats::StoredTensor tensor, formats::SingleTensor(file));
  constexpr uint64_t kMost = 4ull << 30;
  Part out;
  out.dtype = tensor.dtype;
  out.shape = Squeezed(tensor.shape);
  const uint64_t size = static_cast<uint64_t>(tensor.num_elements) * ItemSize(tensor.dtype);
  if (size > kMost) return Error(ErrorCode::kTooLarge, "too large to join").At(path);
  out.bytes.resize(size);
  MSPROBE_TRY(file.ReadAll(tensor, out.bytes.data()));
  return out;
}

// Row-major concatenation along `axis`.
Result<Part> Concatenate(const std::vector<Part>& parts, size_t axis) {
  Part out;
  out.dtype = parts.front().dtype;
  out.shape = parts.front().shape;
  if (axis >= out.shape.size()) {
    return Error(ErrorCode::kMismatch, fmt::format("shape {} has no dimension {} to join along",
                                                   ShapeText(out.shape), axis));
  }
  int64_t outer = 1;
  for (size_t d = 0; d < axis; ++d) outer *= out.shape[d];
  out.shape[axis] = 0;
  for (const Part& p : parts) {
    Shape same = p.shape;
    if (same.size() == out.shape.size()) same[axis] = 0;
    Shape want = out.shape;
    want[axis] = 0;
    if (same != want || p.dtype != out.dtype) {
      return Error(ErrorCode::kMismatch,
                   fmt::format("{} and {} do not fit together", ShapeText(parts.front().shape),
                               ShapeText(p.shape)));
    }
    out.shape[axis] += p.shape[axis];
  }
  for (int64_t o = 0; o < outer; ++o) {
    for (const Part& p : parts) {
      const size_t run = p.bytes.size() / static_cast<size_t>(std::max<int64_t>(outer, 1));
      const auto from = p.bytes.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(o) * run);
      out.bytes.insert(out.bytes.end(), from, from + static_cast<std::ptrdiff_t>(run));
    }
  }
  return out;
}

Status JoinOne(const Leaf& leaf, const std::string& folder, ScratchFolder& scratch,
               FileMap& files) {
  std::vector<std::string> paths;
  for (std::string_view rest = leaf.data_name; !rest.empty();) {
    const size_t end = std::min(rest.find(';'), rest.size());
    MSPROBE_ASSIGN(std::string path, ResolveInside(folder, rest.substr(0, end)));
    paths.push_back(std::move(path));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (leaf.state == State::kInput) {
    files[std::string(leaf.data_name)] = paths.front();
    return {};
  }
  std::vector<Part> parts;
  for (const std::string& path : paths) {
    MSPROBE_ASSIGN(Part part, ReadPart(path));
    parts.push_back(std::move(part));
  }
  MSPROBE_ASSIGN(const Part whole, Concatenate(parts, leaf.state == State::kParameters ? 0 : 1));
  MSPROBE_ASSIGN(const std::string file, scratch.NewFile());
  MSPROBE_TRY(formats::WritePt(file, whole.dtype, whole.shape, false, whole.bytes));
  files[std::string(leaf.data_name)] = file;
  return {};
}

}  // namespace

void JoinMergedTensors(const std::vector<Row>& rows, bool golden, const std::string& folder,
                       ScratchFolder& scratch, FileMap& files, LogSink& log) {
  for (const Row& row : rows) {
    if (!row.merged || row.target == nullptr || row.golden == nullptr) continue;
    const Leaf& leaf = golden ? *row.golden : *row.target;
    if (leaf.data_name.find(';') == std::string_view::npos) continue;
    if (const Status done = JoinOne(leaf, folder, scratch, files); !done.ok()) {
      log.Warning(
          fmt::format("{}: its parts cannot be joined: {}", leaf.name, done.error().ToString()));
    }
  }
}

}  // namespace msprobe::compare
