// Collects what is wrong with a configuration, so that a user sees all of it at once (decisions.md
// 2).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace msprobe::config {

class Problems {
 public:
  static constexpr size_t kShown = 20;

  void Add(Error problem) { problems_.push_back(std::move(problem)); }
  bool empty() const { return problems_.empty(); }
  size_t size() const { return problems_.size(); }

  // The first problem; its message carries the others, one per line, and beyond kShown their
  // number. There must be one.
  Error Combined() &&;

 private:
  std::vector<Error> problems_;
};

// `a`, `b` or `c`: for "expected one of" texts. Each is quoted as JSON text.
std::string QuotedList(std::span<const std::string_view> words);

}  // namespace msprobe::config
