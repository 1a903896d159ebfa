#include "app/build_facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/targets.h"

namespace msprobe::app {

BuildFacts GetBuildFacts() {
  return {.version = MSPROBE_VERSION,
          .commit = MSPROBE_COMMIT,
          .compiler = MSPROBE_COMPILER,
          .build_type = MSPROBE_BUILD_TYPE,
          .compiled = kernels::CompiledTargets(),
          .usable = kernels::UsableTargets()};
}

std::string VersionText() {
  const BuildFacts facts = GetBuildFacts();
  return fmt::format(
      "msprobe {}\n"
      "  commit     {}\n"
      "  compiler   {}\n"
      "  build      {}\n"
      "  vectors    {} (this CPU: {})\n",
      facts.version, facts.commit, facts.compiler, facts.build_type, fmt::join(facts.compiled, " "),
      facts.usable.empty() ? "none" : facts.usable.front());
}

}  // namespace msprobe::app
