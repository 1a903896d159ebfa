// A small YAML document as a tree that remembers where each value stands, for settings files whose
// errors must name their place.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace msprobe::config {

struct YamlMember;

struct YamlNode {
  enum class Kind : uint8_t { kNull, kText, kList, kMap };
  Kind kind = Kind::kNull;
  std::string text;                 // kText: the scalar, whatever type YAML would give it
  std::vector<YamlNode> items;      // kList
  std::vector<YamlMember> members;  // kMap, in order of the file
  uint32_t line = 0, column = 0;    // 1-based

  const YamlNode* Find(std::string_view key) const;  // kMap; nullptr when absent
  bool IsEmpty() const;                              // null, {} or []
};

struct YamlMember {
  std::string first;  // the key
  YamlNode second;    // its value
};

// The one document of the file; kNull for an empty one. Errors, each with line and column:
// kMalformed for text that is no YAML or ends inside quotes, kConfig for repeated or compound keys,
// aliases, and more than one document; kTooLarge beyond 64 MiB; those of InputFile.
Result<YamlNode> ReadYamlTree(const std::string& path);

// kConfig at the place of `node`.
Error YamlProblem(const std::string& path, const YamlNode& node, std::string key,
                  std::string message, std::string hint = {});

}  // namespace msprobe::config
