// What is said at the end of a step: the closing block of dump.json, and names that matched
// nothing.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "collect/collector_impl.h"
#include "json/json.h"

namespace msprobe::collect {
namespace {

void OptionalText(json::Writer& w, std::string_view key, const std::string& text) {
  w.Key(key);
  if (text.empty())
    w.Null();
  else
    w.String(text);
}

}  // namespace

std::string CollectorImpl::Footer(bool complete) const {
  std::string text;
  json::Writer w(text);
  w.StartObject().Key("format_version").Int(1).Key("tool_version").String(MSPROBE_VERSION);
  OptionalText(w, "torch_version", environment_.torch_version);
  OptionalText(w, "python_version", environment_.python_version);
  w.Key("world_size");
  if (environment_.world_size.has_value())
    w.Int(*environment_.world_size);
  else
    w.Null();
  w.Key("step").Int(init_step_ + loop_).Key("rank");
  if (rank_.has_value())
    w.Int(*rank_);
  else
    w.Null();
  w.Key("config").Raw(config::SettingsJson(config_));
  w.Key("counts").StartObject();
  w.Key("written").Uint(counts_.written).Key("filtered").Uint(counts_.filtered);
  w.Key("failed").Uint(counts_.failed).EndObject();
  if (!state_.empty()) w.Key("state").Raw(state_);
  w.Key("complete").Bool(complete).EndObject();
  return text;
}

std::vector<std::string> CollectorImpl::NamesSeen() const {
  std::vector<std::string> names;
  for (const ApiState& api : api_states_) {
    if (api.calls == 0) continue;
    names.push_back(api.bare);
    names.push_back(api.prefix + "0.forward");
    if (api.calls > 1) names.push_back(fmt::format("{}{}.forward", api.prefix, api.calls - 1));
    if (config_.backward) names.push_back(api.prefix + "0.backward");
  }
  for (const ModuleState& module : module_states_) {
    if (module.calls == 0) continue;
    names.push_back(module.prefix.substr(0, module.prefix.size() - 1));
    names.push_back(module.prefix + "forward.0");
    if (module.calls > 1)
      names.push_back(fmt::format("{}forward.{}", module.prefix, module.calls - 1));
    if (config_.backward) names.push_back(module.prefix + "backward.0");
  }
  return names;
}

bool CollectorImpl::Removed(const ApiState& api, std::string_view name) const {
  return std::any_of(config_.removed_apis.begin(), config_.removed_apis.end(),
                     [&](const std::string& text) { return text == name || text == api.bare; });
}

void CollectorImpl::WarnUnmatched() {
  for (const std::string& text : config_.removed_apis) {
    const bool known = std::any_of(api_states_.begin(), api_states_.end(), [&](const ApiState& a) {
      return a.bare == text ||
             (a.bare.ends_with(text) &&
              a.bare[a.bare.size() - std::min(a.bare.size(), text.size() + 1)] == '.');
    });
    if (!known && !removals_checked_)
      log_.Warning(fmt::format("api_list.remove: \"{}\" is no API that is recorded", text));
  }
  removals_checked_ = true;
  for (const std::string& note : std::exchange(config_.unknown_keys, {})) log_.Warning(note);
  // A step in which nothing ran says nothing about names.
  const std::vector<std::string> seen = NamesSeen();
  if (seen.empty()) return;
  for (const std::string& sentence : filter_.Unmatched(seen)) log_.Warning(sentence);
}

}  // namespace msprobe::collect
