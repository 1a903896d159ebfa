// Which entries are collected: `scope`, `list`, risk level, `tensor_list` (dump.md 9.1-9.3, 9.6).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "collect/collector.h"
#include "config/collect_config.h"

namespace msprobe::collect {

// Not thread-safe. The range of `scope` opens and closes as names go by, in order of execution;
// both ends are inside, whole. Unlike upstream (dump.md B8) it does not stay open beyond the step.
class Filter {
 public:
  explicit Filter(const config::CollectConfig& config);

  bool has_list() const { return !list_.empty(); }
  bool has_scope() const { return !scope_.empty(); }

  // One call of an API, or anything else that is a moment: opens the range, says whether it is
  // inside, closes the range.
  bool PassMoment(std::string_view name, bool inside_listed_module, bool risk_passes);
  // A module call lasts: Enter opens the range and says whether the module is collected, Leave
  // closes it. `listed`: the name itself matches `list`.
  bool EnterModule(std::string_view name, bool inside_listed_module, bool* listed);
  void LeaveModule(std::string_view name);
  bool Listed(std::string_view name);             // matches `list`; true without one
  bool MayBeListed(std::string_view name) const;  // the same, without taking note
  bool range_open() const { return scope_.empty() || open_; }

  bool RiskPasses(Risk risk) const;
  bool SaveTensors(std::string_view name);  // matches `tensor_list`

  void EndStep() { open_ = false; }
  // One sentence for each name of `scope`, `list` and `tensor_list` that has matched nothing so
  // far, with the nearest of `seen`; each is given once.
  std::vector<std::string> Unmatched(const std::vector<std::string>& seen);

 private:
  struct Name {
    std::string text;
    bool hit = false, said = false;
  };
  static std::vector<Name> Names(const std::vector<std::string>& texts);
  static bool MatchAny(std::vector<Name>& names, std::string_view name);
  void OpenAt(std::string_view name);
  void CloseAfter(std::string_view name);

  std::vector<Name> scope_, list_, tensor_list_;
  config::RiskLevel risk_level_;
  bool open_ = false;
};

}  // namespace msprobe::collect
