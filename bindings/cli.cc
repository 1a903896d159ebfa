// The console script's way into the command line.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/module.h"
#include "bindings/user_metrics.h"
#include "cli/main.h"

namespace msprobe::bindings {

void RegisterCli(nanobind::module_& m) {
  namespace nb = nanobind;
  m.def(
      "main",
      [](const std::vector<std::string>& argv) {
        // Handles its own exceptions and answers with an exit status.
        cli::Hooks hooks;
        hooks.precheck = [](const std::string& options) {
          const nb::gil_scoped_acquire acquire;
          return nb::cast<int>(nb::module_::import_("msprobe.precheck.run").attr("main")(options));
        };
        hooks.doctor = [](const std::string& options) {
          const nb::gil_scoped_acquire acquire;
          return nb::cast<int>(nb::module_::import_("msprobe.doctor").attr("main")(options));
        };
        hooks.metrics = &MetricsOfFolder;
        const nb::gil_scoped_release release;
        return cli::Main(argv, hooks);
      },
      nb::arg("argv"),
      "Run the command line (argv[0] is the program's name) and return its exit status.\n\n"
      "SIGINT and SIGTERM are handled by the command itself while it runs.");
}

}  // namespace msprobe::bindings
