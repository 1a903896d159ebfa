#include "config/rule_config.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "base/text.h"
#include "config/problems.h"
#include "config/yaml_tree.h"

namespace msprobe::config {
namespace {

constexpr std::array<std::string_view, 1> kTopKeys = {"limits"};
constexpr std::array<std::string_view, 7> kItemKeys = {"api",   "dtype", "name", "rounding",
                                                       "noise", "gain",  "off"};
constexpr std::array<std::string_view, 15> kRules = {
    "R1", "R2", "R3", "R4", "R5", "R6", "R7", "R8", "class", "Q1", "Q2", "Q3", "Q4", "Q5", "Q6"};
constexpr std::string_view kExample = "expected like \"limits: [{api: linear, noise: 1e-3}]\"";

bool Fits(const std::string& pattern, std::string_view text) {
  return pattern.empty() || fnmatch(pattern.c_str(), std::string(text).c_str(), 0) == 0;
}

class Reader {
 public:
  Reader(const std::string& path, LogSink& log) : path_(path), log_(log) {}

  Result<RuleFile> Read() {
    MSPROBE_ASSIGN(const YamlNode root, ReadYamlTree(path_));
    if (root.kind != YamlNode::Kind::kMap) {
      return YamlProblem(path_, root, "", root.IsEmpty() ? "the file is empty" : "not a mapping",
                         std::string(kExample));
    }
    RuleFile out;
    CheckKeys(root, "", kTopKeys);
    const YamlNode* limits = root.Find("limits");
    if (limits == nullptr || limits->kind != YamlNode::Kind::kList) {
      Problem(limits == nullptr ? root : *limits, "limits",
              limits == nullptr ? "missing" : "not a list", std::string(kExample));
    } else {
      for (size_t i = 0; i < limits->items.size(); ++i) {
        ReadItem(limits->items[i], fmt::format("limits[{}]", i), out.limits.emplace_back());
      }
    }
    if (!problems_.empty()) return std::move(problems_).Combined();
    return out;
  }

 private:
  void Problem(const YamlNode& node, std::string key, std::string message, std::string hint = {}) {
    problems_.Add(YamlProblem(path_, node, std::move(key), std::move(message), std::move(hint)));
  }

  void CheckKeys(const YamlNode& map, const std::string& at,
                 std::span<const std::string_view> known) {
    for (const auto& [key, node] : map.members) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      const std::string place = at.empty() ? key : at + "." + key;
      if (const std::string_view near = Nearest(key, known); !near.empty()) {
        Problem(node, place, "unknown key", fmt::format("did you mean {}?", near));
      } else {
        log_.Warning(YamlProblem(path_, node, place, "unknown key, ignored").ToString());
      }
    }
  }

  void Text(const YamlNode& item, const std::string& at, std::string_view key, std::string& out) {
    const YamlNode* node = item.Find(key);
    if (node == nullptr) return;
    if (node->kind != YamlNode::Kind::kText || node->text.empty()) {
      return Problem(*node, fmt::format("{}.{}", at, key), "not a text");
    }
    out = node->text;
  }

  void Number(const YamlNode& item, const std::string& at, std::string_view key,
              std::optional<double>& out) {
    const YamlNode* node = item.Find(key);
    if (node == nullptr) return;
    double value = 0;
    if (node->kind != YamlNode::Kind::kText || !ParsePyFloat(node->text, value) ||
        !std::isfinite(value) || value <= 0) {
      return Problem(*node, fmt::format("{}.{}", at, key), "not a number above 0");
    }
    out = value;
  }

  void Off(const YamlNode& item, const std::string& at, std::vector<std::string>& out) {
    const YamlNode* node = item.Find("off");
    if (node == nullptr || node->IsEmpty()) return;
    if (node->kind != YamlNode::Kind::kList) return Problem(*node, at + ".off", "not a list");
    for (const YamlNode& rule : node->items) {
      if (std::find(kRules.begin(), kRules.end(), rule.text) == kRules.end()) {
        Problem(rule, at + ".off", fmt::format("'{}' is no rule", rule.text),
                "msprobe compare --explain-rules lists them");
      } else {
        out.push_back(rule.text);
      }
    }
  }

  void ReadItem(const YamlNode& item, const std::string& at, RuleChange& out) {
    if (item.kind != YamlNode::Kind::kMap) {
      return Problem(item, at, "not a mapping", std::string(kExample));
    }
    CheckKeys(item, at, kItemKeys);
    Text(item, at, "api", out.api);
    Text(item, at, "dtype", out.dtype);
    Text(item, at, "name", out.name);
    Number(item, at, "rounding", out.rounding);
    Number(item, at, "noise", out.noise);
    Number(item, at, "gain", out.gain);
    Off(item, at, out.off);
    if (!out.rounding && !out.noise && !out.gain && out.off.empty()) {
      Problem(item, at, "changes nothing", "expected rounding, noise, gain or off");
    }
  }

  const std::string& path_;
  LogSink& log_;
  Problems problems_;
};

}  // namespace

bool RuleChange::Matches(std::string_view api_name, std::string_view row_dtype,
                         std::string_view row_name) const {
  return Fits(api, api_name) && Fits(dtype, row_dtype) && Fits(name, row_name);
}

Result<RuleFile> ReadRuleFile(const std::string& path, LogSink& log) {
  return Reader(path, log).Read();
}

}  // namespace msprobe::config
