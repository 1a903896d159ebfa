#include "config/merge_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/text.h"
#include "config/problems.h"
#include "config/yaml_tree.h"

namespace msprobe::config {
namespace {

constexpr std::array<std::string_view, 2> kKeys = {"api", "compare_index"};
constexpr std::string_view kExample = "expected like \"api: [Torch.mul, Distributed.all_reduce]\"";

// A list of texts without repetitions; one text alone counts as a list of one.
void ReadTexts(const std::string& path, const YamlNode& node, const std::string& key,
               Problems& problems, std::vector<std::string>& out) {
  const auto is_name = [](const YamlNode& n) {
    // YAML has no numbers here: `api: 5` is a text that names nothing.
    return n.kind == YamlNode::Kind::kText &&
           std::any_of(n.text.begin(), n.text.end(), [](unsigned char c) {
             return c == '_' || c == '*' || c == '?' || c >= 0x80 || std::isalpha(c) != 0;
           });
  };
  if (node.kind == YamlNode::Kind::kText) {
    if (!is_name(node)) {
      problems.Add(YamlProblem(path, node, key, fmt::format("'{}' is not a name", node.text),
                               std::string(kExample)));
      return;
    }
    out.push_back(node.text);
    return;
  }
  if (node.kind != YamlNode::Kind::kList) {
    problems.Add(YamlProblem(path, node, key, "not a list of names", std::string(kExample)));
    return;
  }
  for (size_t i = 0; i < node.items.size(); ++i) {
    const YamlNode& item = node.items[i];
    if (!is_name(item)) {
      problems.Add(YamlProblem(path, item, fmt::format("{}[{}]", key, i), "not a name"));
    } else if (std::find(out.begin(), out.end(), item.text) == out.end()) {
      out.push_back(item.text);
    }
  }
}

}  // namespace

Result<MergeConfig> ReadMergeConfig(const std::string& path, LogSink& log) {
  MSPROBE_ASSIGN(const YamlNode root, ReadYamlTree(path));
  if (root.kind != YamlNode::Kind::kMap) {
    return YamlProblem(path, root, "", root.IsEmpty() ? "the file is empty" : "not a mapping",
                       std::string(kExample));
  }
  MergeConfig out;
  Problems problems;
  for (const auto& [key, node] : root.members) {
    if (std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end()) continue;
    if (const std::string_view near = Nearest(key, kKeys); !near.empty()) {
      problems.Add(
          YamlProblem(path, node, key, "unknown key", fmt::format("did you mean {}?", near)));
    } else {
      log.Warning(YamlProblem(path, node, key, "unknown key, ignored").ToString());
    }
  }
  const YamlNode* api = root.Find("api");
  if (api == nullptr || api->IsEmpty()) {
    problems.Add(YamlProblem(path, api == nullptr ? root : *api, "api",
                             api == nullptr ? "missing" : "empty", std::string(kExample)));
  } else {
    ReadTexts(path, *api, "api", problems, out.apis);
  }
  if (const YamlNode* index = root.Find("compare_index"); index != nullptr && !index->IsEmpty()) {
    ReadTexts(path, *index, "compare_index", problems, out.metrics);
  }
  if (!problems.empty()) return std::move(problems).Combined();
  return out;
}

}  // namespace msprobe::config
