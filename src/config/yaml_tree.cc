#include "config/yaml_tree.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <sstream>

#include "base/file.h"
#include "base/text.h"
#include "config/yaml_quotes.h"

namespace msprobe::config {
namespace {

constexpr uint64_t kMaxYamlBytes = 64ull << 20;
constexpr size_t kMaxDepth = 64;

// Aliases are refused, so a small file cannot become a large tree.
class TreeBuilder final : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::string_view text) : text_(text) {}
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { Add(mark, YamlNode()); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    Fail(mark, "aliases are not supported here");
  }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                const std::string& value) override {
    if (!IsClosed(text_, static_cast<size_t>(std::max(mark.pos, 0)))) {
      return Fail(mark, "the file ends inside quotes");
    }
    YamlNode node;
    node.kind = YamlNode::Kind::kText;
    node.text = value;
    Add(mark, std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    Open(mark, YamlNode::Kind::kList);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    Open(mark, YamlNode::Kind::kMap);
  }
  void OnMapEnd() override { Close(); }

  bool failed() const { return !reason_.empty(); }
  Error TakeError(const std::string& path) {
    return Error(ErrorCode::kConfig, std::move(reason_)).At(path).AtLine(line_, column_);
  }
  YamlNode Take() { return std::move(root_); }

 private:
  struct Level {
    YamlNode node;
    std::string key;  // kMap: of the value that comes next
    bool has_key = false;
  };

  void Open(const YAML::Mark& mark, YamlNode::Kind kind) {
    if (failed()) return;
    if (levels_.size() >= kMaxDepth) return Fail(mark, "nested too deep");
    if (!levels_.empty() && levels_.back().node.kind == YamlNode::Kind::kMap &&
        !levels_.back().has_key) {
      return Fail(mark, "a key is a list or a mapping");
    }
    levels_.emplace_back();
    levels_.back().node.kind = kind;
    Place(mark, levels_.back().node);
  }
  void Close() {
    if (failed()) return;
    YamlNode node = std::move(levels_.back().node);
    levels_.pop_back();
    Put(std::move(node));
  }
  void Add(const YAML::Mark& mark, YamlNode node) {
    if (failed()) return;
    Place(mark, node);
    if (levels_.empty() || levels_.back().node.kind == YamlNode::Kind::kList ||
        levels_.back().has_key) {
      return Put(std::move(node));
    }
    Level& level = levels_.back();
    if (node.kind != YamlNode::Kind::kText) return Fail(mark, "a key is empty");
    if (const YamlNode* first = level.node.Find(node.text)) {
      return Fail(mark, fmt::format("the key \"{}\" was given before, near line {}", node.text,
                                    first->line));
    }
    level.key = std::move(node.text);
    level.has_key = true;
  }
  void Put(YamlNode node) {
    if (levels_.empty()) {
      root_ = std::move(node);
      return;
    }
    Level& level = levels_.back();
    if (level.node.kind == YamlNode::Kind::kList) {
      level.node.items.push_back(std::move(node));
    } else {
      level.node.members.push_back({std::move(level.key), std::move(node)});
      level.has_key = false;
    }
  }
  static void Place(const YAML::Mark& mark, YamlNode& node) {
    node.line = static_cast<uint32_t>(std::max(mark.line, 0) + 1);
    node.column = static_cast<uint32_t>(std::max(mark.column, 0) + 1);
  }
  void Fail(const YAML::Mark& mark, std::string reason) {
    if (failed()) return;
    reason_ = std::move(reason);
    line_ = static_cast<uint32_t>(std::max(mark.line, 0) + 1);
    column_ = static_cast<uint32_t>(std::max(mark.column, 0) + 1);
  }

  const std::string_view text_;
  std::vector<Level> levels_;
  YamlNode root_;
  std::string reason_;
  uint32_t line_ = 0, column_ = 0;
};

}  // namespace

const YamlNode* YamlNode::Find(std::string_view key) const {
  for (const auto& [name, node] : members) {
    if (name == key) return &node;
  }
  return nullptr;
}

bool YamlNode::IsEmpty() const {
  return kind == Kind::kNull || (kind != Kind::kText && items.empty() && members.empty());
}

Result<YamlNode> ReadYamlTree(const std::string& path) {
  MSPROBE_ASSIGN(std::string text, ReadTextFile(path, kMaxYamlBytes));
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  if (!IsValidUtf8(text)) {
    return Error(ErrorCode::kMalformed, "the file is not UTF-8 text").At(path);
  }
  TreeBuilder tree(text);
  try {  // yaml-cpp reports by exceptions; they end here
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(tree)) return YamlNode();
    if (tree.failed()) return tree.TakeError(path);
    TreeBuilder rest(text);
    if (parser.HandleNextDocument(rest)) {
      return Error(ErrorCode::kConfig, "the file holds more than one document").At(path);
    }
  } catch (const YAML::Exception& e) {
    return Error(ErrorCode::kMalformed, fmt::format("not valid YAML: {}", e.msg))
        .At(path)
        .AtLine(static_cast<uint32_t>(std::max(e.mark.line, 0) + 1),
                static_cast<uint32_t>(std::max(e.mark.column, 0) + 1));
  }
  return tree.Take();
}

Error YamlProblem(const std::string& path, const YamlNode& node, std::string key,
                  std::string message, std::string hint) {
  return Error(ErrorCode::kConfig, std::move(message))
      .At(path)
      .AtLine(node.line, node.column)
      .Key(std::move(key))
      .Hint(std::move(hint));
}

}  // namespace msprobe::config
