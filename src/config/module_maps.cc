#include "config/module_maps.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "config/problems.h"
#include "config/yaml_tree.h"

namespace msprobe::config {
namespace {

constexpr std::string_view kApiExample =
    R"(expected like "- {ms_api: Mint.add, pt_api: Torch.add, ms_args: [0, 1], pt_args: [0, 1]}")";
constexpr std::string_view kLayerExample =
    R"(expected like "TopLayer: {network: module}", a class and the names of its children)";
constexpr std::array<std::string_view, 10> kApiKeys = {"ms_api",
                                                       "pt_api",
                                                       "ms_args",
                                                       "pt_args",
                                                       "ms_outputs",
                                                       "pt_outputs",
                                                       "ms_parameters",
                                                       "pt_parameters",
                                                       "ms_parameters_grad",
                                                       "pt_parameters_grad"};

class ApiReader {
 public:
  ApiReader(const std::string& path, LogSink& log) : path_(path), log_(log) {}

  Result<ApiMap> Read(const YamlNode& root) {
    if (root.kind != YamlNode::Kind::kList || root.items.empty()) {
      return YamlProblem(path_, root, "", root.IsEmpty() ? "the file is empty" : "not a list",
                         std::string(kApiExample));
    }
    ApiMap out;
    for (size_t i = 0; i < root.items.size(); ++i) {
      key_ = fmt::format("[{}]", i);
      if (root.items[i].kind != YamlNode::Kind::kMap) {
        problems_.Add(
            YamlProblem(path_, root.items[i], key_, "not a mapping", std::string(kApiExample)));
        continue;
      }
      ApiPair pair = ReadPair(root.items[i]);
      const auto same = [&](const ApiPair& p) { return p.target == pair.target; };
      if (!pair.target.empty() && std::any_of(out.begin(), out.end(), same)) {
        problems_.Add(YamlProblem(path_, root.items[i], key_ + ".ms_api",
                                  fmt::format("{} was given before", pair.target)));
      }
      out.push_back(std::move(pair));
    }
    if (!problems_.empty()) return std::move(problems_).Combined();
    return out;
  }

 private:
  ApiPair ReadPair(const YamlNode& node) {
    for (const auto& [key, value] : node.members) {
      if (std::find(kApiKeys.begin(), kApiKeys.end(), key) != kApiKeys.end()) continue;
      const std::string_view near = Nearest(key, kApiKeys);
      const std::string hint = near.empty() ? "" : fmt::format("did you mean {}?", near);
      Error problem = YamlProblem(path_, value, key_ + "." + key, "unknown key", hint);
      if (near.empty()) {
        log_.Warning(problem.ToString() + ", ignored");
      } else {
        problems_.Add(std::move(problem));
      }
    }
    ApiPair out;
    out.target = ReadName(node, "ms_api");
    out.golden = ReadName(node, "pt_api");
    out.arguments = ReadPlaces(node, "args");
    out.outputs = ReadPlaces(node, "outputs");
    out.parameters = ReadPlaces(node, "parameters");
    out.gradients = ReadPlaces(node, "parameters_grad");
    return out;
  }

  std::string ReadName(const YamlNode& node, std::string_view key) {
    const YamlNode* value = node.Find(key);
    if (value != nullptr && value->kind == YamlNode::Kind::kText && !value->text.empty()) {
      return value->text;
    }
    problems_.Add(
        YamlProblem(path_, value == nullptr ? node : *value, fmt::format("{}.{}", key_, key),
                    value == nullptr ? "missing" : "not a name", std::string(kApiExample)));
    return {};
  }

  std::optional<PlaceMap> ReadPlaces(const YamlNode& node, std::string_view what) {
    const std::string keys[2] = {fmt::format("ms_{}", what), fmt::format("pt_{}", what)};
    const YamlNode* lists[2] = {node.Find(keys[0]), node.Find(keys[1])};
    if (lists[0] == nullptr && lists[1] == nullptr) return std::nullopt;
    PlaceMap out;
    for (size_t side = 0; side < 2; ++side) {
      if (lists[side] == nullptr) {
        problems_.Add(YamlProblem(path_, *lists[1 - side], fmt::format("{}.{}", key_, keys[side]),
                                  "missing", fmt::format("{} goes with it", keys[1 - side])));
        return std::nullopt;
      }
      ReadList(*lists[side], fmt::format("{}.{}", key_, keys[side]),
               side == 0 ? out.target : out.golden);
    }
    if (out.target.size() != out.golden.size()) {
      problems_.Add(YamlProblem(
          path_, *lists[1], fmt::format("{}.{}", key_, keys[1]),
          fmt::format("{} places against {} of {}", out.golden.size(), out.target.size(), keys[0]),
          "the two lists pair place by place"));
    }
    return out;
  }

  void ReadList(const YamlNode& node, const std::string& key, std::vector<std::string>& out) {
    if (node.IsEmpty()) return;
    if (node.kind != YamlNode::Kind::kList) {
      problems_.Add(YamlProblem(path_, node, key, "not a list", "expected numbers or names"));
      return;
    }
    for (const YamlNode& item : node.items) {
      if (item.kind != YamlNode::Kind::kText || item.text.empty()) {
        problems_.Add(YamlProblem(path_, item, key, "not a number or name"));
      } else if (std::find(out.begin(), out.end(), item.text) != out.end()) {
        problems_.Add(YamlProblem(path_, item, key, fmt::format("{} stands twice", item.text)));
      } else {
        out.push_back(item.text);
      }
    }
  }

  const std::string& path_;
  LogSink& log_;
  std::string key_;
  Problems problems_;
};

// The rules of a class, new when there are none.
LayerRules& RulesOf(const std::string& type, LayerMap& map) {
  const auto it = std::find_if(map.begin(), map.end(),
                               [&](const LayerRules& rules) { return rules.type == type; });
  if (it != map.end()) return *it;
  map.push_back({type, {}});
  return map.back();
}

}  // namespace

Result<ApiMap> ReadApiMapYaml(const std::string& path, LogSink& log) {
  MSPROBE_ASSIGN(const YamlNode root, ReadYamlTree(path));
  return ApiReader(path, log).Read(root);
}

Result<LayerMap> ReadLayerMapYaml(const std::string& path) {
  MSPROBE_ASSIGN(const YamlNode root, ReadYamlTree(path));
  if (root.kind != YamlNode::Kind::kMap) {
    return YamlProblem(path, root, "", root.IsEmpty() ? "the file is empty" : "not a mapping",
                       std::string(kLayerExample));
  }
  LayerMap out;
  Problems problems;
  for (const auto& [type, rules] : root.members) {
    if (rules.kind != YamlNode::Kind::kMap) {
      problems.Add(
          YamlProblem(path, rules, type, "not a mapping of names", std::string(kLayerExample)));
      continue;
    }
    LayerRules& to = RulesOf(type == "Cell" ? "TopLayer" : type, out);
    for (const auto& [from, into] : rules.members) {
      std::string name = into.text.substr(0, into.text.find('('));
      name.resize(name.find_last_not_of(' ') + 1);
      if (into.kind != YamlNode::Kind::kText || name.empty() || from.empty()) {
        problems.Add(YamlProblem(path, into, fmt::format("{}.{}", type, from), "not a name",
                                 std::string(kLayerExample)));
      } else {
        to.names.emplace_back(from, std::move(name));
      }
    }
    std::stable_sort(to.names.begin(), to.names.end(),
                     [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  }
  if (!problems.empty()) return std::move(problems).Combined();
  return out;
}

}  // namespace msprobe::config
