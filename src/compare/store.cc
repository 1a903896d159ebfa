#include "compare/store.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace msprobe::compare {
namespace {

constexpr size_t kBlock = 256 << 10;

bool IsNumber(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

Direction DirectionOf(std::string_view word) {
  if (word == "forward") return Direction::kForward;
  if (word == "backward") return Direction::kBackward;
  if (word == "parameters_grad") return Direction::kGrad;
  return Direction::kOther;
}

// Cuts the last dotted component off `head`.
std::string_view CutLast(std::string_view& head) {
  const size_t dot = head.rfind('.');
  const std::string_view last = dot == std::string_view::npos ? head : head.substr(dot + 1);
  head = dot == std::string_view::npos ? std::string_view() : head.substr(0, dot);
  return last;
}

}  // namespace

std::string_view Arena::Join(std::string_view a, std::string_view b, std::string_view c) {
  const size_t size = a.size() + b.size() + c.size();
  if (size == 0) return {};
  if (size > left_) {
    const size_t block = std::max(size, kBlock);
    blocks_.push_back(std::make_unique_for_overwrite<char[]>(block));
    next_ = blocks_.back().get();
    left_ = block;
  }
  char* const out = next_;
  for (const std::string_view part : {a, b, c}) {
    if (!part.empty()) std::memcpy(next_, part.data(), part.size());
    next_ += part.size();
  }
  left_ -= size;
  return {out, size};
}

std::string_view TextPool::Intern(std::string_view text) {
  if (text == last_) return last_;
  auto it = texts_.find(text);
  if (it == texts_.end()) it = texts_.insert(arena_.Copy(text)).first;
  return last_ = *it;
}

NameParts ParseEntryName(std::string_view name) {
  std::string_view head = name;
  const std::string_view last = CutLast(head);
  if (const Direction d = DirectionOf(last); d == Direction::kGrad && !head.empty()) {
    return {.base = head, .call = {}, .direction = d, .number_last = true};
  } else if (d != Direction::kOther) {
    const std::string_view call = CutLast(head);
    if (IsNumber(call) && !head.empty()) {
      return {.base = head, .call = call, .direction = d, .number_last = false};
    }
  } else if (IsNumber(last)) {
    const Direction before = DirectionOf(CutLast(head));
    if (before != Direction::kOther && !head.empty()) {
      return {.base = head, .call = last, .direction = before, .number_last = true};
    }
  }
  return {.base = name, .call = {}, .direction = Direction::kOther, .number_last = false};
}

namespace {

// capture.md 3, rule 2: one function object, several names. The first prefix that owns it stands
// for all.
struct Alias {
  std::string_view name, as;  // the part behind the prefix, and the whole canonical base
};
constexpr std::array kFunctional = {std::string_view("conv1d"),
                                    std::string_view("conv2d"),
                                    std::string_view("conv3d"),
                                    std::string_view("conv_transpose1d"),
                                    std::string_view("conv_transpose2d"),
                                    std::string_view("conv_transpose3d"),
                                    std::string_view("conv_tbc"),
                                    std::string_view("adaptive_avg_pool1d"),
                                    std::string_view("avg_pool1d"),
                                    std::string_view("bilinear"),
                                    std::string_view("celu_"),
                                    std::string_view("channel_shuffle"),
                                    std::string_view("cosine_similarity"),
                                    std::string_view("hardshrink"),
                                    std::string_view("pairwise_distance"),
                                    std::string_view("pdist"),
                                    std::string_view("pixel_shuffle"),
                                    std::string_view("pixel_unshuffle"),
                                    std::string_view("prelu"),
                                    std::string_view("relu_"),
                                    std::string_view("rrelu_"),
                                    std::string_view("selu_"),
                                    std::string_view("threshold_")};
constexpr std::array<Alias, 5> kOthers = {{{"lstm", "VF.lstm"},
                                           {"dsmm", "Torch.mm"},
                                           {"spmm", "Torch.mm"},
                                           {"hsmm", "Torch.hspmm"},
                                           {"saddmm", "Torch.sspaddmm"}}};

std::string CanonicalBase(std::string_view base) {
  const size_t dot = base.find('.');
  if (dot == std::string_view::npos || base.find('.', dot + 1) != std::string_view::npos) {
    return std::string(base);
  }
  const std::string_view prefix = base.substr(0, dot), name = base.substr(dot + 1);
  if (prefix != "Torch" && prefix != "VF" && prefix != "Functional") return std::string(base);
  if (std::find(kFunctional.begin(), kFunctional.end(), name) != kFunctional.end()) {
    return "Functional." + std::string(name);
  }
  for (const Alias& alias : kOthers) {
    if (alias.name == name && prefix != "Functional") return std::string(alias.as);
  }
  return std::string(base);
}

// What stands before the direction in the name of a module is its class.
bool IsClass(std::string_view rest) {
  return rest.starts_with("forward.") || rest.starts_with("backward.") ||
         rest.starts_with("parameters_grad");
}

// fully_shard() of PyTorch gives each module a class of its own: FSDPBlock for a Block.
std::string_view ClassOfFsdp(std::string_view name) {
  constexpr std::string_view kPrefix = "FSDP";
  const bool wrapped = name.starts_with(kPrefix) && name.size() > kPrefix.size() &&
                       name[kPrefix.size()] >= 'A' && name[kPrefix.size()] <= 'Z';
  return wrapped ? name.substr(kPrefix.size()) : name;
}

}  // namespace

std::string CanonicalName(std::string_view name) {
  if (!name.starts_with("Module.") && !name.starts_with("Cell.")) {
    if (!name.starts_with("Torch.") && !name.starts_with("VF.")) return std::string(name);
    const NameParts parts = ParseEntryName(name);
    return CanonicalBase(parts.base) + std::string(name.substr(parts.base.size()));
  }
  std::string out;
  out.reserve(name.size());
  for (std::string_view rest = name; !rest.empty();) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    rest = dot == std::string_view::npos ? std::string_view() : rest.substr(dot + 1);
    if (part == "module" || part == "_orig_mod" || part == "_fsdp_wrapped_module") continue;
    if (!out.empty()) out += '.';
    out += IsClass(rest) ? ClassOfFsdp(part) : part;
  }
  return out;
}

}  // namespace msprobe::compare
