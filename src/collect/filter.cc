#include "collect/filter.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace msprobe::collect {

Filter::Filter(const config::CollectConfig& config)
    : scope_(Names(config.scope)),
      list_(Names(config.list)),
      tensor_list_(Names(config.tensor_list)),
      risk_level_(config.risk_level) {
  if (scope_.size() != 2) scope_.clear();
}

std::vector<Filter::Name> Filter::Names(const std::vector<std::string>& texts) {
  std::vector<Name> names;
  for (const std::string& text : texts) names.push_back({text});
  return names;
}

bool Filter::MatchAny(std::vector<Name>& names, std::string_view name) {
  bool any = false;
  for (Name& candidate : names) {
    if (any && candidate.hit) continue;
    if (name.find(candidate.text) == std::string_view::npos) continue;
    candidate.hit = any = true;
  }
  return any;
}

void Filter::OpenAt(std::string_view name) {
  if (scope_.empty() || name != scope_[0].text) return;
  scope_[0].hit = true;
  open_ = true;
}

void Filter::CloseAfter(std::string_view name) {
  if (scope_.empty() || name != scope_[1].text) return;
  scope_[1].hit = true;
  open_ = false;
}

bool Filter::Listed(std::string_view name) { return list_.empty() || MatchAny(list_, name); }

bool Filter::MayBeListed(std::string_view name) const {
  return list_.empty() || std::any_of(list_.begin(), list_.end(), [&](const Name& candidate) {
           return name.find(candidate.text) != std::string_view::npos;
         });
}

bool Filter::PassMoment(std::string_view name, bool inside_listed_module, bool risk_passes) {
  if (scope_.empty() && list_.empty()) return risk_passes;
  OpenAt(name);
  const bool inside = range_open();
  CloseAfter(name);
  const bool listed = Listed(name);
  return inside && (listed || inside_listed_module);
}

bool Filter::EnterModule(std::string_view name, bool inside_listed_module, bool* listed) {
  OpenAt(name);
  *listed = !list_.empty() && Listed(name);
  return range_open() && (list_.empty() || *listed || inside_listed_module);
}

void Filter::LeaveModule(std::string_view name) { CloseAfter(name); }

bool Filter::RiskPasses(Risk risk) const {
  switch (risk_level_) {
    case config::RiskLevel::kCore:
      return risk == Risk::kCore;
    case config::RiskLevel::kFocus:
      return risk != Risk::kLow;
    case config::RiskLevel::kAll:
    case config::RiskLevel::kEvery:
      return true;
  }
  return true;
}

bool Filter::SaveTensors(std::string_view name) { return MatchAny(tensor_list_, name); }

std::vector<std::string> Filter::Unmatched(const std::vector<std::string>& seen) {
  const std::vector<std::string_view> candidates(seen.begin(), seen.end());
  std::vector<std::string> sentences;
  const auto tell = [&](std::vector<Name>& names, std::string_view key) {
    for (Name& name : names) {
      if (name.hit || name.said) continue;
      name.said = true;
      const std::string_view nearest = Nearest(name.text, candidates);
      sentences.push_back(
          fmt::format("{} name \"{}\" has matched nothing so far{}", key, name.text,
                      nearest.empty() ? std::string()
                                      : fmt::format("; the nearest name seen is \"{}\"", nearest)));
    }
  };
  tell(scope_, "scope");
  tell(list_, "list");
  tell(tensor_list_, "tensor_list");
  return sentences;
}

}  // namespace msprobe::collect
