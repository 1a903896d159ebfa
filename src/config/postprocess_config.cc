#include "config/postprocess_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "config/problems.h"
#include "config/yaml_tree.h"

namespace msprobe::config {
namespace {

struct Block {
  std::string_view name;
  struct Map {
    std::string_view key;
    MatrixProduct::Side side;
    bool golden;
  };
  std::vector<Map> maps;
};

using Side = MatrixProduct::Side;

// In order of application.
const std::vector<Block>& Blocks() {
  static const std::vector<Block> blocks = {
      {"right_matmul",
       {{"target_tensor_map", Side::kRight, false}, {"golden_tensor_map", Side::kRight, true}}},
      {"left_matmul",
       {{"target_tensor_map", Side::kLeft, false}, {"golden_tensor_map", Side::kLeft, true}}},
      {"left_right_matmul",
       {{"left_target_tensor_map", Side::kLeft, false},
        {"right_target_tensor_map", Side::kRight, false},
        {"left_golden_tensor_map", Side::kLeft, true},
        {"right_golden_tensor_map", Side::kRight, true}}}};
  return blocks;
}

struct Reader {
  const std::string& path;
  Problems& problems;
  LogSink& log;

  void CheckKeys(const YamlNode& map, const std::string& prefix,
                 const std::vector<std::string_view>& known) {
    for (const auto& [key, node] : map.members) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      const std::string_view near = Nearest(key, known);
      if (near.empty()) {
        log.Warning(YamlProblem(path, node, prefix + key, "unknown key, ignored").ToString());
      } else {
        problems.Add(YamlProblem(path, node, prefix + key, "unknown key",
                                 fmt::format("did you mean {}?", near)));
      }
    }
  }

  void ReadMap(const YamlNode& map, const std::string& key, const Block::Map& what,
               PostprocessConfig& out) {
    if (map.IsEmpty()) return;
    if (map.kind != YamlNode::Kind::kMap) {
      return problems.Add(
          YamlProblem(path, map, key, "not a mapping",
                      "expected matrix files with lists of tensor files, like \"q.pt: [a.pt]\""));
    }
    for (const auto& [matrix, names] : map.members) {
      if (names.IsEmpty()) continue;
      MatrixProduct product{what.side, what.golden, matrix, {}};
      if (names.kind == YamlNode::Kind::kText) product.data_names.push_back(names.text);
      if (names.kind == YamlNode::Kind::kMap) {
        problems.Add(YamlProblem(path, names, key + "." + matrix, "not a list of tensor files"));
      }
      for (const YamlNode& name : names.items) {
        if (name.kind == YamlNode::Kind::kText) {
          product.data_names.push_back(name.text);
        } else {
          problems.Add(YamlProblem(path, name, key + "." + matrix, "not a tensor file"));
        }
      }
      out.products.push_back(std::move(product));
    }
  }
};

}  // namespace

Result<PostprocessConfig> ReadPostprocessConfig(const std::string& path, LogSink& log) {
  MSPROBE_ASSIGN(const YamlNode root, ReadYamlTree(path));
  PostprocessConfig out;
  if (root.IsEmpty()) {
    log.Warning(
        Error(ErrorCode::kConfig, "the file is empty and changes nothing").At(path).ToString());
    return out;
  }
  if (root.kind != YamlNode::Kind::kMap) {
    return YamlProblem(path, root, "", "not a mapping",
                       "expected right_matmul, left_matmul or left_right_matmul");
  }
  Problems problems;
  Reader reader{path, problems, log};
  std::vector<std::string_view> names;
  for (const Block& block : Blocks()) names.push_back(block.name);
  reader.CheckKeys(root, "", names);
  for (const Block& block : Blocks()) {
    const YamlNode* node = root.Find(block.name);
    if (node == nullptr || node->IsEmpty()) continue;
    const std::string prefix = std::string(block.name) + ".";
    if (node->kind != YamlNode::Kind::kMap) {
      problems.Add(YamlProblem(path, *node, std::string(block.name), "not a mapping"));
      continue;
    }
    std::vector<std::string_view> keys;
    for (const Block::Map& map : block.maps) keys.push_back(map.key);
    reader.CheckKeys(*node, prefix, keys);
    for (const Block::Map& map : block.maps) {
      if (const YamlNode* maps = node->Find(map.key)) {
        reader.ReadMap(*maps, prefix + std::string(map.key), map, out);
      }
    }
  }
  if (!problems.empty()) return std::move(problems).Combined();
  return out;
}

}  // namespace msprobe::config
