// Typed reading of one object of a JSON configuration, with every problem named by place, value and
// what is allowed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "config/json_source.h"
#include "config/problems.h"
#include "json/json.h"

namespace msprobe::config {

// Where a value came from: a key of a file, or an argument of the constructor.
struct Spot {
  const JsonSource* source = nullptr;  // null: an argument
  KeyPath where;

  Spot Key(std::string_view key) const { return {source, where.Key(key)}; }
  Spot Index(size_t index) const { return {source, where.Index(index)}; }
  // kConfig in a file, kInvalidArgument for an argument, whose "file" is "PrecisionDebugger".
  Error Problem(std::string message, std::string hint = {}) const;
  std::string Note(std::string message) const { return Problem(std::move(message)).ToString(); }
};

// One word of a closed set.
template <class Enum>
using Words = std::span<const std::pair<std::string_view, Enum>>;

class SectionReader {
 public:
  // `object` null: a section that is not there; every key then keeps its default.
  SectionReader(Spot spot, const json::Value* object, Problems& problems, LogSink& log)
      : spot_(std::move(spot)), object_(object), problems_(problems), log_(log) {}

  // Null when the key is absent.
  const json::Value* Find(std::string_view key) const {
    return object_ == nullptr ? nullptr : object_->Find(key);
  }
  Spot At(std::string_view key) const { return spot_.Key(key); }
  Problems& problems() { return problems_; }
  LogSink& log() { return log_; }

  // Each sets `out` when the key is there and right, adds a problem when it is wrong.
  void Bool(std::string_view key, bool& out);
  void Int(std::string_view key, int64_t least, int64_t most, int64_t& out);
  void Text(std::string_view key, std::optional<std::string>& out);
  void TextList(std::string_view key, std::vector<std::string>& out);
  // Sorted and without repetitions (dump.md 3.2).
  void Numbers(std::string_view key, std::vector<int64_t>& out);
  template <class Enum>
  void Choice(std::string_view key, Words<Enum> words, Enum& out) {
    if (const json::Value* value = Find(key)) ChoiceOf(*value, At(key), words, out, problems_);
  }

  // Every key of the object has to be one of `known`; one that is nearly one of them is a problem,
  // any other a warning, which is also added to `unknown` (decisions.md 12).
  void CheckKeys(std::span<const std::string_view> known, std::vector<std::string>& unknown);
  // A warning for each of `keys` that is there: known, but without effect, for this reason.
  void WarnWithoutEffect(std::span<const std::string_view> keys, std::string_view reason);

  template <class Enum>
  static void ChoiceOf(const json::Value& value, const Spot& spot, Words<Enum> words, Enum& out,
                       Problems& problems) {
    if (value.is_string()) {
      for (const auto& [word, e] : words) {
        if (word == value.as_string()) {
          out = e;
          return;
        }
      }
    }
    std::vector<std::string_view> allowed;
    for (const auto& [word, e] : words) allowed.push_back(word);
    problems.Add(WrongWord(value, spot, allowed));
  }
  static Error WrongWord(const json::Value& value, const Spot& spot,
                         std::span<const std::string_view> allowed);

 private:
  Spot spot_;
  const json::Value* object_;
  Problems& problems_;
  LogSink& log_;
};

// The syntax of `rank` and `step` (dump.md 3.2): a list of integers from 0 to 1,000,000, of texts
// "a-b" with a ≤ b, and of texts with a single number. Sorted, without repetitions.
std::vector<int64_t> ReadNumbers(const json::Value& value, const Spot& spot, Problems& problems);

}  // namespace msprobe::config
