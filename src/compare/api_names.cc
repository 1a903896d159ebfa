#include "compare/api_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

namespace msprobe::compare {
namespace {

std::string_view FirstPart(std::string_view base) { return base.substr(0, base.find('.')); }

std::string_view LastPart(std::string_view base) { return base.substr(base.rfind('.') + 1); }

bool IsModule(std::string_view base) {
  return base.starts_with("Cell.") || base.starts_with("Module.");
}

// `MatMul` as `matmul`, `layer_norm` as `layernorm`; a last underscore says "in place" and stays.
std::string PlainName(std::string_view name) {
  std::string out;
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (c == '_' && i + 1 < name.size()) continue;
    out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return out;
}

// Where functions of a prefix are looked for, best first.
size_t Preference(std::string_view target_prefix, std::string_view golden_prefix) {
  constexpr std::array<std::string_view, 3> kPlain = {"Torch", "Functional", "Tensor"};
  constexpr std::array<std::string_view, 3> kNets = {"Functional", "Torch", "Tensor"};
  if (target_prefix == golden_prefix) return 0;
  const auto& order = target_prefix == "Mint" || target_prefix == "Tensor" ? kPlain : kNets;
  const auto it = std::find(order.begin(), order.end(), golden_prefix);
  return 1 + static_cast<size_t>(it - order.begin());
}

// `name` with `base` in place of its first `length` characters.
std::string WithBase(std::string_view name, size_t length, std::string_view base) {
  return fmt::format("{}{}", base, name.substr(length));
}

}  // namespace

ApiNames::ApiNames(const config::ApiMap* map, const Side& target, const Side& golden) {
  if (map == nullptr) {
    LikenByName(target, golden);
  } else {
    for (const config::ApiPair& pair : *map) {
      auto& to = pair.target.find('.') == std::string::npos ? by_class_ : by_base_;
      to.emplace(pair.target, Found{pair.golden, &pair});
    }
  }
  std::unordered_map<std::string_view, size_t> leads;
  for (const auto& [from, to] : by_base_) ++leads[to.name];
  for (const auto& [base, count] : leads) {
    if (count > 1) shared_.emplace(base);
  }
}

void ApiNames::LikenByName(const Side& target, const Side& golden) {
  std::unordered_map<std::string, std::vector<std::string_view>> golden_bases;
  std::unordered_set<std::string_view> seen;
  for (const Entry& entry : golden.entries) {
    const NameParts parts = ParseEntryName(entry.name);
    if (parts.direction == Direction::kOther || IsModule(parts.base)) continue;
    if (!seen.insert(parts.base).second) continue;
    golden_bases[PlainName(LastPart(parts.base))].push_back(parts.base);
  }
  for (const Entry& entry : target.entries) {
    const NameParts parts = ParseEntryName(entry.name);
    if (parts.direction == Direction::kOther || IsModule(parts.base)) continue;
    if (by_base_.contains(std::string(parts.base))) continue;
    const auto found = golden_bases.find(PlainName(LastPart(parts.base)));
    if (found == golden_bases.end()) continue;
    const auto worse = [&](std::string_view a, std::string_view b) {
      const std::string_view prefix = FirstPart(parts.base);
      return Preference(prefix, FirstPart(a)) < Preference(prefix, FirstPart(b));
    };
    const auto best = std::min_element(found->second.begin(), found->second.end(), worse);
    by_base_.emplace(parts.base, Found{std::string(*best), nullptr});
  }
}

ApiNames::Found ApiNames::Find(std::string_view entry) const {
  const std::string_view base = ParseEntryName(entry).base;
  if (const auto it = by_base_.find(std::string(base)); it != by_base_.end()) {
    return {WithBase(entry, base.size(), it->second.name), it->second.pair};
  }
  if (IsModule(base)) {
    const auto it = by_class_.find(std::string(LastPart(base)));
    if (it != by_class_.end()) {
      const size_t prefix = base.find('.');
      const std::string golden = fmt::format(
          "Module{}{}", base.substr(prefix, base.rfind('.') + 1 - prefix), it->second.name);
      return {WithBase(entry, base.size(), golden), it->second.pair};
    }
  }
  return {std::string(entry), nullptr};
}

std::vector<std::string> ApiNames::Unused(const Side& target) const {
  std::unordered_set<std::string_view> bases, classes;
  for (const Entry& entry : target.entries) {
    const std::string_view base = ParseEntryName(entry.name).base;
    bases.insert(base);
    if (IsModule(base)) classes.insert(LastPart(base));
  }
  std::vector<std::string> out;
  for (const auto& [name, found] : by_base_) {
    if (!bases.contains(name)) out.push_back(name);
  }
  for (const auto& [name, found] : by_class_) {
    if (!classes.contains(name)) out.push_back(name);
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::string GoldenPlace(std::string_view place, Direction direction, const config::ApiPair& pair) {
  if (direction == Direction::kBackward) return std::string(place);
  const std::optional<config::PlaceMap>* map = nullptr;
  std::string section;
  std::string_view rest = place;
  if (direction == Direction::kGrad) {
    map = pair.gradients ? &pair.gradients : &pair.parameters;
  } else {
    const size_t end = place.find('.', 1);
    if (end == std::string_view::npos) return std::string(place);
    section = place.substr(0, end);
    rest = place.substr(end);
    if (section == ".input") map = &pair.arguments;
    if (section == ".output") map = &pair.outputs;
    if (section == ".parameters") map = &pair.parameters;
  }
  if (map == nullptr || !*map) return std::string(place);
  const size_t end = std::min(rest.find('.', 1), rest.size());
  const std::string_view item = rest.substr(1, end - 1);
  const auto& from = (*map)->target;
  const auto it = std::find(from.begin(), from.end(), item);
  if (it == from.end()) return {};
  return fmt::format("{}.{}{}", section, (*map)->golden[static_cast<size_t>(it - from.begin())],
                     rest.substr(end));
}

}  // namespace msprobe::compare
