// What this program was built from and how: for `--version`, `doctor` and reports of faults.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace msprobe::app {

struct BuildFacts {
  std::string_view version;           // "0.1.0"
  std::string_view commit;            // "bd891c5f0a1b", with "-dirty"; "unknown" outside of git
  std::string_view compiler;          // "GNU 12.2.0"
  std::string_view build_type;        // "Release"; with sanitizers: "RelWithDebInfo, address"
  std::vector<std::string> compiled;  // instruction sets of the vector code, best first
  std::vector<std::string> usable;    // those that this CPU runs
};
BuildFacts GetBuildFacts();

// "msprobe 0.1.0" and a line per fact.
std::string VersionText();

}  // namespace msprobe::app
