// The console script's way into the command line.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/module.h"
#include "bindings/user_metrics.h"
#include "cli/main.h"

namespace msprobe::bindings {

Result<std::string> ReplayCalls(const std::string& jobs) {
  namespace nb = nanobind;
  const nb::gil_scoped_acquire acquire;
  try {
    return nb::cast<std::string>(
        nb::module_::import_("msprobe.precheck.culprit").attr("scores")(jobs));
  } catch (const nb::python_error& e) {
    const std::string text = e.what();
    const size_t end = text.rfind('\n');
    const bool missing = e.matches(PyExc_ImportError);
    return Error(ErrorCode::kUnsupported,
                 missing ? "PyTorch cannot be imported"
                         : text.substr(end == std::string::npos ? 0 : end + 1));
  }
}

void RegisterCli(nanobind::module_& m) {
  namespace nb = nanobind;
  m.def(
      "main",
      [](const std::vector<std::string>& argv) {
        // Handles its own exceptions and answers with an exit status.
        cli::Hooks hooks;
        hooks.precheck = [](const std::string& options) {
          const nb::gil_scoped_acquire acquire;
          return nb::cast<int>(nb::module_::import_("msprobe.precheck").attr("main")(options));
        };
        hooks.doctor = [](const std::string& options) {
          const nb::gil_scoped_acquire acquire;
          return nb::cast<int>(nb::module_::import_("msprobe.doctor").attr("main")(options));
        };
        hooks.replay = &ReplayCalls;
        hooks.metrics = &MetricsOfFolder;
        const nb::gil_scoped_release release;
        return cli::Main(argv, hooks);
      },
      nb::arg("argv"),
      "Run the command line (argv[0] is the program's name) and return its exit status.\n\n"
      "SIGINT and SIGTERM are handled by the command itself while it runs.");
}

}  // namespace msprobe::bindings
