#include "config/problems.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace msprobe::config {

Error Problems::Combined() && {
  Error first = std::move(problems_.front());
  if (problems_.size() == 1) return first;
  // The hint is printed after the message, so it has to move in front of the other problems.
  if (!first.hint.empty()) first.message += "; ";
  first.message += std::exchange(first.hint, {});
  const size_t shown = std::min(problems_.size(), kShown);
  for (size_t i = 1; i < shown; ++i) {
    first.message += "\n";
    first.message += problems_[i].ToString();
  }
  if (problems_.size() > shown) {
    first.message += fmt::format("\nand {} more problems", problems_.size() - shown);
  }
  return first;
}

std::string QuotedList(std::span<const std::string_view> words) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out += i + 1 == words.size() ? " or " : ", ";
    out += '"';
    out += words[i];
    out += '"';
  }
  return out;
}

}  // namespace msprobe::config
