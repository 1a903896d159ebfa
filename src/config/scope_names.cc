#include "config/scope_names.h"

#include <algorithm>
#include <array>

namespace msprobe::config {
namespace {

bool IsNumber(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}
bool IsDirection(std::string_view text) { return text == "forward" || text == "backward"; }

// Splits off the last part of a dotted name.
std::string_view TakeLast(std::string_view& name) {
  const size_t dot = name.rfind('.');
  const std::string_view last = dot == std::string_view::npos ? name : name.substr(dot + 1);
  name = dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
  return last;
}

// At least two parts, none of them empty.
bool HasTwoParts(std::string_view name) {
  return name.find('.') != std::string_view::npos && name.front() != '.' && name.back() != '.' &&
         name.find("..") == std::string_view::npos;
}

}  // namespace

ScopeNameKind KindOfScopeName(std::string_view name) {
  const bool is_module = name.starts_with("Module.");
  const std::string_view last = TakeLast(name), before = TakeLast(name);
  if (!HasTwoParts(name)) return ScopeNameKind::kNeither;
  if (is_module)
    return IsNumber(last) && IsDirection(before) ? ScopeNameKind::kModule : ScopeNameKind::kNeither;
  return IsDirection(last) && IsNumber(before) ? ScopeNameKind::kApi : ScopeNameKind::kNeither;
}

bool HasBuiltInPrefix(std::string_view name) {
  constexpr std::array<std::string_view, 13> kPrefixes = {
      "Distributed", "Functional", "Torch", "Tensor", "Mint",      "MintFunctional", "Primitive",
      "Aten",        "VF",         "NPU",   "Jit",    "MindSpeed", "Triton"};
  const std::string_view prefix = name.substr(0, name.find('.'));
  return std::find(kPrefixes.begin(), kPrefixes.end(), prefix) != kPrefixes.end();
}

}  // namespace msprobe::config
