#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <sstream>
#include <string_view>
#include <unordered_map>

#include "base/file.h"
#include "base/text.h"
#include "config/compare_config.h"
#include "config/yaml_quotes.h"

namespace msprobe::config {
namespace {

constexpr uint64_t kMaxYamlBytes = 64ull << 20;
constexpr std::string_view kExpected =
    "expected a mapping of names to names, like \"fc2.Dense: fc2.Linear\"";

// Receives the events of one document and keeps its pairs. No tree is built, so neither aliases nor
// nesting can make a small file large.
class PairCollector final : public YAML::EventHandler {
 public:
  explicit PairCollector(std::string_view text) : text_(text) {}
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override {
    if (depth_ == 0) return Fail(mark, "the file is empty");
    Fail(mark, has_key_ ? fmt::format("the value of \"{}\" is empty", key_)
                        : std::string("a key is empty"));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    Fail(mark, "aliases are not supported here");
  }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                const std::string& value) override {
    if (failed()) return;
    if (!IsClosed(text_, static_cast<size_t>(std::max(mark.pos, 0))))
      return Fail(mark, "the file ends inside quotes");
    if (depth_ == 0) return Fail(mark, "the file holds a single value");
    if (has_key_) {
      pairs_.emplace_back(std::move(key_), value);
      has_key_ = false;
      return;
    }
    const auto [first, is_new] = lines_.emplace(value, mark.line + 1);
    if (!is_new) {
      return Fail(mark,
                  fmt::format("the key \"{}\" was given before, in line {}", value, first->second));
    }
    key_ = value;
    has_key_ = true;
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    Nested(mark, "a list");
  }
  void OnSequenceEnd() override { --depth_; }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    Nested(mark, depth_ == 0 ? std::string_view() : "a mapping");
  }
  void OnMapEnd() override { --depth_; }

  bool failed() const { return !reason_.empty(); }
  Error TakeError(const std::string& path) {
    return Error(ErrorCode::kConfig, std::move(reason_))
        .At(path)
        .AtLine(line_, column_)
        .Hint(std::string(kExpected));
  }
  NameMap TakePairs() { return std::move(pairs_); }

 private:
  void Nested(const YAML::Mark& mark, std::string_view kind) {
    if (!kind.empty()) {
      if (depth_ == 0) {
        Fail(mark, fmt::format("the file holds {}", kind));
      } else {
        Fail(mark, has_key_ ? fmt::format("the value of \"{}\" is {}", key_, kind)
                            : fmt::format("a key is {}", kind));
      }
    }
    ++depth_;
  }
  void Fail(const YAML::Mark& mark, std::string reason) {
    if (failed()) return;
    reason_ = std::move(reason);
    line_ = static_cast<uint32_t>(mark.line + 1);
    column_ = static_cast<uint32_t>(mark.column + 1);
  }

  const std::string_view text_;
  NameMap pairs_;
  std::unordered_map<std::string, int> lines_;
  std::string key_;
  bool has_key_ = false;
  int depth_ = 0;
  std::string reason_;
  uint32_t line_ = 0, column_ = 0;
};

}  // namespace

Result<NameMap> ReadNameMapYaml(const std::string& path) {
  MSPROBE_ASSIGN(std::string text, ReadTextFile(path, kMaxYamlBytes));
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  if (!IsValidUtf8(text))
    return Error(ErrorCode::kMalformed, "the file is not UTF-8 text").At(path);
  PairCollector pairs(text);
  try {  // yaml-cpp reports by exceptions; they end here
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(pairs)) {
      return Error(ErrorCode::kConfig, "the file is empty").At(path).Hint(std::string(kExpected));
    }
    if (pairs.failed()) return pairs.TakeError(path);
    PairCollector rest(text);
    if (parser.HandleNextDocument(rest)) {
      return Error(ErrorCode::kConfig, "the file holds more than one document")
          .At(path)
          .Hint("expected one");
    }
  } catch (const YAML::Exception& e) {
    return Error(ErrorCode::kMalformed, fmt::format("not valid YAML: {}", e.msg))
        .At(path)
        .AtLine(static_cast<uint32_t>(e.mark.line + 1), static_cast<uint32_t>(e.mark.column + 1));
  }
  return pairs.TakePairs();
}

}  // namespace msprobe::config
