#include "compare/layer_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <map>

#include "base/file.h"

namespace msprobe::compare {
namespace {

constexpr std::string_view kTop = "TopLayer";

// `name` without its last `count` components; empty when it has no more than these.
std::string_view CutParts(std::string_view name, int count) {
  for (int i = 0; i < count; ++i) {
    const size_t dot = name.rfind('.');
    if (dot == std::string_view::npos) return {};
    name = name.substr(0, dot);
  }
  return name;
}

std::string_view LastPart(std::string_view name) { return name.substr(name.rfind('.') + 1); }

std::string_view WithoutFirst(std::string_view name) {
  const size_t dot = name.find('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(dot + 1);
}

void Append(std::string& scope, std::string_view part) {
  if (part.empty()) return;
  if (!scope.empty()) scope += '.';
  scope += part;
}

// The function of a stack line `File {path}, line {n}, in {function}, …`.
std::string_view FunctionOf(std::string_view line) {
  constexpr std::string_view kIn = ", in ";
  const size_t at = line.find(kIn);
  if (at == std::string_view::npos) return {};
  line.remove_prefix(at + kIn.size());
  return line.substr(0, line.find(','));
}

bool Contains(std::string_view text, std::string_view piece) {
  return text.find(piece) != std::string_view::npos;
}

// The outermost function of the framework between a call and user code. Both frameworks reach a
// module's body through functions of their own, which name no place.
std::string_view FrameworkFunction(const std::vector<std::string>& stack) {
  constexpr std::array<std::string_view, 4> kFramework = {
      "site-packages/torch/", "package/torch/", "site-packages/mindspore/", "package/mindspore/"};
  constexpr std::array<std::string_view, 5> kEntrances = {"construct", "__call__", "forward",
                                                          "_call_impl", "_wrapped_call_impl"};
  std::string_view found;
  for (const std::string& line : stack) {
    const std::string_view path = std::string_view(line).substr(0, line.find(", line "));
    if (Contains(path, "msprobe") || Contains(path, "MindSpeed")) continue;
    const auto in_path = [&](std::string_view piece) { return Contains(path, piece); };
    if (std::none_of(kFramework.begin(), kFramework.end(), in_path)) break;
    const std::string_view function = FunctionOf(line);
    if (std::find(kEntrances.begin(), kEntrances.end(), function) != kEntrances.end()) continue;
    found = function;
  }
  return found;
}

std::string_view StateName(Direction direction) {
  switch (direction) {
    case Direction::kForward:
      return "forward";
    case Direction::kBackward:
      return "backward";
    case Direction::kGrad:
      return "parameters_grad";
    case Direction::kOther:
      break;
  }
  return {};
}

class PlaceFinder {
 public:
  PlaceFinder(const Parents* parents, const dump::StackTable* stacks)
      : parents_(parents), stacks_(stacks) {}

  LayerPlace Of(const std::string& name) const {
    LayerPlace out;
    const NameParts parts = ParseEntryName(name);
    if (parts.direction == Direction::kOther) return out;
    out.state = StateName(parts.direction);
    out.type = LastPart(parts.base);
    const bool module = parts.base.starts_with("Module.") || parts.base.starts_with("Cell.");
    if (module || parts.direction == Direction::kGrad) {
      out.scope = WithoutFirst(CutParts(parts.base, 1));
      if (out.scope.empty()) out.scope = kTop;  // the root itself, when it is recorded
      return out;
    }
    // A gradient stands where the call stood.
    std::string call = name;
    if (parts.direction == Direction::kBackward) {
      call = fmt::format("{}.{}.forward", parts.base, parts.call);
    }
    out.scope = WithoutFirst(CutParts(ParentOf(call, name), 3));
    if (stacks_ != nullptr) {
      const std::vector<std::string>* stack = stacks_->Find(call);
      if (stack != nullptr) Append(out.scope, FrameworkFunction(*stack));
    }
    Append(out.scope, out.type);
    return out;
  }

 private:
  std::string_view ParentOf(const std::string& call, const std::string& name) const {
    if (parents_ == nullptr) return {};
    auto it = parents_->find(call);
    if (it == parents_->end()) it = parents_->find(name);
    return it == parents_->end() ? std::string_view() : std::string_view(it->second);
  }

  const Parents* parents_;
  const dump::StackTable* stacks_;
};

// The number behind `prefix` in a scope, and how long it is; nullopt when there is none.
std::optional<std::pair<uint64_t, size_t>> NumberBehind(std::string_view scope,
                                                        std::string_view prefix) {
  if (!scope.starts_with(prefix)) return std::nullopt;
  const std::string_view rest = scope.substr(prefix.size());
  const std::string_view digits = rest.substr(0, rest.find('.'));
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || digits.empty() || end != digits.data() + digits.size()) {
    return std::nullopt;
  }
  return std::pair(number, digits.size());
}

// Stages of a pipeline number their layers on; every stage begins at 0 here.
void ShiftPipelineLayers(std::vector<LayerPlace>& places) {
  std::map<std::string, uint64_t> first;  // prefix of layers, smallest number
  for (const LayerPlace& p : places) {
    if (p.type != "ParallelTransformer" || p.scope.empty()) continue;
    first.emplace((p.scope == kTop ? "" : p.scope + ".") + "layers.",
                  std::numeric_limits<uint64_t>::max());
  }
  for (auto& [prefix, least] : first) {
    for (const LayerPlace& p : places) {
      if (const auto n = NumberBehind(p.scope, prefix)) least = std::min(least, n->first);
    }
    for (LayerPlace& p : places) {
      const auto n = NumberBehind(p.scope, prefix);
      if (n) p.scope.replace(prefix.size(), n->second, std::to_string(n->first - least));
    }
  }
}

}  // namespace

std::vector<LayerPlace> PlacesOf(const Side& side, const Parents* parents,
                                 const dump::StackTable* stacks) {
  const PlaceFinder finder(parents, stacks);
  std::vector<LayerPlace> out;
  out.reserve(side.entries.size());
  for (const Entry& entry : side.entries) out.push_back(finder.Of(entry.name));
  ShiftPipelineLayers(out);
  return out;
}

std::string GoldenScope(const std::string& scope, const config::LayerMap& rules,
                        const std::unordered_map<std::string, std::string>& type_of) {
  const auto rules_of = [&](const std::string& type) -> const config::LayerRules* {
    const auto it = std::find_if(rules.begin(), rules.end(),
                                 [&](const config::LayerRules& r) { return r.type == type; });
    return it == rules.end() ? nullptr : &*it;
  };
  std::string out, done;
  std::string_view rest = scope;
  while (!rest.empty()) {
    std::string type(kTop);
    if (!done.empty()) {
      const auto it = type_of.find(done);
      type = it == type_of.end() ? std::string() : it->second;
    }
    std::string_view part = rest.substr(0, rest.find('.')), renamed = part;
    if (const config::LayerRules* of_type = rules_of(type)) {
      for (const auto& [from, to] : of_type->names) {
        if (!rest.starts_with(from)) continue;
        if (rest.size() > from.size() && rest[from.size()] != '.') continue;
        part = rest.substr(0, from.size());
        renamed = to;
        break;
      }
    }
    Append(out, renamed);
    Append(done, part);
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
  }
  return out;
}

std::vector<uint32_t> LayerPartners(const std::vector<LayerPlace>& target,
                                    const std::vector<LayerPlace>& golden,
                                    const config::LayerMap& rules) {
  std::unordered_map<std::string, std::string> type_of;
  for (const LayerPlace& p : target) {
    if (!p.scope.empty()) type_of.try_emplace(p.scope, p.type);
  }
  std::unordered_map<std::string, std::vector<uint32_t>> at;  // golden entries of place and state
  for (size_t g = 0; g < golden.size(); ++g) {
    const LayerPlace& p = golden[g];
    if (!p.scope.empty()) at[p.scope + "\n" + p.state].push_back(static_cast<uint32_t>(g));
  }
  std::unordered_map<std::string, std::string> scopes;
  std::unordered_map<std::string, size_t> used;
  std::vector<uint32_t> out(target.size(), kNoEntry);
  for (size_t t = 0; t < target.size(); ++t) {
    const LayerPlace& p = target[t];
    if (p.scope.empty()) continue;
    const auto [scope, fresh] = scopes.try_emplace(p.scope);
    if (fresh) scope->second = GoldenScope(p.scope, rules, type_of);
    const std::string key = scope->second + "\n" + p.state;
    const auto it = at.find(key);
    if (it == at.end()) continue;
    const size_t position = used[key]++;
    if (position < it->second.size()) out[t] = it->second[position];
  }
  return out;
}

Result<std::optional<std::vector<uint32_t>>> ReadLayerPartners(const Side& target,
                                                               const Side& golden,
                                                               const Input& input,
                                                               const config::LayerMap& rules,
                                                               std::vector<std::string>& notes) {
  std::vector<LayerPlace> places[2];
  for (size_t i = 0; i < 2; ++i) {
    const std::string folder = DirName(i == 0 ? input.target_json : input.golden_json);
    const std::string construct = JoinPath(folder, "construct.json");
    const std::string stack = JoinPath(folder, "stack.json");
    if (!PathExists(construct)) {
      notes.push_back(fmt::format(
          "-lm has no effect: it needs construct.json beside both dumps, and {} does not exist",
          construct));
      return std::optional<std::vector<uint32_t>>();
    }
    MSPROBE_ASSIGN(const Parents parents, dump::ReadConstruct(construct));
    std::optional<dump::StackTable> stacks;
    if (PathExists(stack)) {
      MSPROBE_ASSIGN(stacks, dump::ReadStack(stack));
    }
    places[i] = PlacesOf(i == 0 ? target : golden, &parents, stacks ? &*stacks : nullptr);
  }
  std::vector<uint32_t> partners = LayerPartners(places[0], places[1], rules);
  const auto found =
      std::count_if(partners.begin(), partners.end(), [](uint32_t g) { return g != kNoEntry; });
  notes.push_back(
      fmt::format("{} of {} target entries have a golden entry at their place in the "
                  "module tree (-lm)",
                  found, partners.size()));
  return std::optional(std::move(partners));
}

}  // namespace msprobe::compare
