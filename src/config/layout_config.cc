#include "config/layout_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "config/yaml_tree.h"

namespace msprobe::config {
namespace {

constexpr int64_t kMostRanks = 65536, kMostAxes = 64;

std::optional<int64_t> WholeNumber(std::string_view text) {
  int64_t out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return out;
}

Result<Mesh> ReadMesh(const std::string& path, const YamlNode& root, const std::string& side) {
  const YamlNode* node = root.Find(side);
  if (node == nullptr || node->kind != YamlNode::Kind::kMap || node->members.empty()) {
    return YamlProblem(path, node == nullptr ? root : *node, side,
                       node == nullptr ? "missing" : "not a mapping of sizes",
                       "expected like: " + side + ": {tp: 4, dp: 2}");
  }
  Mesh out;
  int64_t ranks = 1;
  for (const auto& [name, size] : node->members) {
    const auto n = size.kind == YamlNode::Kind::kText ? WholeNumber(size.text) : std::nullopt;
    if (!n || *n < 1 || *n > kMostRanks || ranks * *n > kMostRanks) {
      return YamlProblem(path, size, side + "." + name, "no size",
                         fmt::format("a whole number from 1 to {}", kMostRanks));
    }
    ranks *= *n;
    out.emplace_back(name, *n);
  }
  return out;
}

bool Has(const Mesh& mesh, std::string_view name) {
  return std::any_of(mesh.begin(), mesh.end(), [&](const auto& d) { return d.first == name; });
}

Result<Held> ReadHeld(const std::string& path, const YamlNode& node, const std::string& key) {
  if (node.kind == YamlNode::Kind::kText) {
    if (node.text == "same") return Held{Held::How::kSame, 0};
    if (node.text == "sum") return Held{Held::How::kSum, 0};
    if (node.text == "guess") return Held{Held::How::kGuess, 0};
    const auto axis = WholeNumber(node.text);
    if (axis && *axis >= -kMostAxes && *axis < kMostAxes) return Held{Held::How::kAxis, *axis};
  }
  return YamlProblem(path, node, key, fmt::format("has no value '{}'", node.text),
                     "the number of an axis, same, sum or guess");
}

Result<LayoutRule> ReadRule(const std::string& path, const YamlNode& node, const std::string& key,
                            const Mesh& mesh) {
  LayoutRule out;
  if (node.kind != YamlNode::Kind::kMap) {
    return YamlProblem(path, node, key, "not a mapping", "expected like: {name: '*', tp: 0}");
  }
  for (const auto& [name, value] : node.members) {
    if (name == "name") {
      out.name = value.text;
      continue;
    }
    if (!Has(mesh, name)) {
      return YamlProblem(path, value, key + "." + name, "unknown key",
                         "name, or a dimension of the mesh");
    }
    MSPROBE_ASSIGN(const Held held, ReadHeld(path, value, key + "." + name));
    out.held.emplace_back(name, held);
  }
  if (out.name.empty()) return YamlProblem(path, node, key + ".name", "missing or empty");
  return out;
}

}  // namespace

Result<Layout> ReadLayout(const std::string& path) {
  MSPROBE_ASSIGN(const YamlNode root, ReadYamlTree(path));
  if (root.kind != YamlNode::Kind::kMap) {
    return YamlProblem(path, root, "", root.IsEmpty() ? "the file is empty" : "not a mapping",
                       "expected target, golden and tensors");
  }
  for (const auto& [key, node] : root.members) {
    if (key == "target" || key == "golden" || key == "tensors" || key.starts_with('_')) continue;
    return YamlProblem(path, node, key, "unknown key", "target, golden and tensors are known");
  }
  Layout out;
  MSPROBE_ASSIGN(out.target, ReadMesh(path, root, "target"));
  MSPROBE_ASSIGN(out.golden, ReadMesh(path, root, "golden"));
  for (const auto& [mine, other, side] :
       {std::tuple(&out.target, &out.golden, "golden"), {&out.golden, &out.target, "target"}}) {
    for (const auto& [name, size] : *mine) {
      if (Has(*other, name)) continue;
      return YamlProblem(path, root, fmt::format("{}.{}", side, name), "missing",
                         "both sides have the same dimensions; a size of 1 is one");
    }
  }
  const YamlNode* tensors = root.Find("tensors");
  if (tensors == nullptr || tensors->IsEmpty()) return out;
  if (tensors->kind != YamlNode::Kind::kList) {
    return YamlProblem(path, *tensors, "tensors", "not a list");
  }
  for (size_t i = 0; i < tensors->items.size(); ++i) {
    MSPROBE_ASSIGN(out.rules.emplace_back(),
                   ReadRule(path, tensors->items[i], fmt::format("tensors[{}]", i), out.target));
  }
  return out;
}

std::string HeldText(const Held& held) {
  switch (held.how) {
    case Held::How::kSame:
      return "same";
    case Held::How::kSum:
      return "sum";
    case Held::How::kAxis:
      return fmt::format("{}", held.axis);
    case Held::How::kGuess:
      break;
  }
  return "guess";
}

}  // namespace msprobe::config
