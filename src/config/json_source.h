// A JSON configuration file: its text, its value, and where in the text each key stands.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "json/json.h"

namespace msprobe::config {

// The way from the root to a value: member names and array indexes.
class KeyPath {
 public:
  struct Part {
    std::string key;     // of an object, or
    int64_t index = -1;  // of an array when >= 0
  };

  KeyPath() = default;
  KeyPath Key(std::string_view key) const;
  KeyPath Index(size_t index) const;
  const std::vector<Part>& parts() const { return parts_; }
  std::string ToString() const;  // "statistics.list[3]"; empty for the root

 private:
  std::vector<Part> parts_;
};

class JsonSource {
 public:
  static constexpr uint64_t kMaxBytes = 64ull << 20;

  // Errors: those of reading, kTooLarge beyond kMaxBytes, kMalformed and kTruncated with line and
  // column.
  static Result<JsonSource> Read(const std::string& path);

  const std::string& path() const { return path_; }
  const json::Value& root() const { return document_.root(); }
  uint64_t duplicate_keys() const { return document_.duplicate_keys(); }

  // A kConfig error with file, line and column of the key (or array element) at `where`, and its
  // key path. A place that is not in the file gets no line.
  Error Problem(const KeyPath& where, std::string message, std::string hint = {}) const;
  // "<path>:<line>:<column> <key path>: <message>" for the log.
  std::string Note(const KeyPath& where, std::string message) const;

 private:
  struct LineColumn {
    uint32_t line = 0, column = 0;
  };
  LineColumn Locate(const KeyPath& where) const;

  std::string path_;
  std::string text_;
  json::Document document_;
};

// The value as JSON text, for messages; long values are cut.
std::string ShownValue(const json::Value& value);
// `the value 3 is an integer`: what is wrong when another kind was expected.
std::string WrongKind(const json::Value& value);
// "a string", "an integer", "a list", …
std::string_view KindName(const json::Value& value);

}  // namespace msprobe::config
