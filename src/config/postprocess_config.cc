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

// A map of API to keyword; an empty one switches the side off.
void ReadLengths(const std::string& path, const YamlNode& map, const std::string& key,
                 Problems& problems, std::vector<ValidLength>& out) {
  out.clear();
  if (map.IsEmpty()) return;
  if (map.kind != YamlNode::Kind::kMap) {
    problems.Add(YamlProblem(path, map, key, "not a mapping of APIs to keyword arguments",
                             "expected like \"npu_grouped_matmul: group_list\""));
    return;
  }
  for (const auto& [api, keyword] : map.members) {
    if (keyword.kind == YamlNode::Kind::kText && !api.empty()) {
      out.push_back({api, keyword.text});
    } else {
      problems.Add(YamlProblem(path, keyword, key + "." + api, "not the name of an argument"));
    }
  }
}

}  // namespace

std::vector<ValidLength> DefaultValidLengths() {
  return {{"npu_dequant_swiglu_quant", "group_index"}, {"npu_grouped_matmul", "group_list"}};
}

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
  names.push_back("valid_length");
  reader.CheckKeys(root, "", names);
  if (const YamlNode* lengths = root.Find("valid_length")) {
    if (lengths->kind == YamlNode::Kind::kMap) {
      reader.CheckKeys(*lengths, "valid_length.", {"target", "golden"});
    } else if (!lengths->IsEmpty()) {
      problems.Add(YamlProblem(path, *lengths, "valid_length", "not a mapping",
                               "expected target and golden"));
    }
    for (const auto& [side, out_lengths] :
         {std::pair("target", &out.target_lengths), {"golden", &out.golden_lengths}}) {
      const YamlNode* map = lengths->Find(side);
      if (map == nullptr) continue;
      ReadLengths(path, *map, std::string("valid_length.") + side, problems, *out_lengths);
    }
  }
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
