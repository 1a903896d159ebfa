// The console script's way into the command line.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/engine.h"
#include "bindings/module.h"
#include "bindings/user_metrics.h"
#include "cli/main.h"

namespace msprobe::bindings {

namespace {

// The last line of a Python error: its type and message.
std::string LastLine(const char* what) {
  const std::string text = what;
  const size_t end = text.rfind('\n');
  return text.substr(end == std::string::npos ? 0 : end + 1);
}

}  // namespace

Result<std::string> ReplayCalls(const std::string& jobs, const CancelToken& cancel) {
  namespace nb = nanobind;
  const nb::gil_scoped_acquire acquire;
  try {
    const nb::object stop = nb::cpp_function([&cancel] { return cancel.cancelled(); });
    return nb::cast<std::string>(
        nb::module_::import_("msprobe.precheck.culprit").attr("scores")(jobs, stop));
  } catch (const nb::python_error& e) {
    if (cancel.cancelled()) return Error(ErrorCode::kCancelled, "interrupted");
    const std::string text = LastLine(e.what());
    if (!e.matches(PyExc_ImportError)) return Error(ErrorCode::kUnsupported, text);
    return Error(ErrorCode::kUnsupported, "replays need PyTorch, which cannot be imported here (" +
                                              text + "); install it with: pip install torch");
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
          const nb::object ray = nb::module_::import_("json").attr("loads")(options)["ray"];
          const char* const home =
              nb::cast<bool>(ray) ? "msprobe.scale.replays" : "msprobe.precheck";
          return nb::cast<int>(nb::module_::import_(home).attr("main")(options));
        };
        hooks.doctor = [](const std::string& options) {
          const nb::gil_scoped_acquire acquire;
          return nb::cast<int>(nb::module_::import_("msprobe.doctor").attr("main")(options));
        };
        hooks.replay = &ReplayCalls;
        hooks.metrics = &MetricsOfFolder;
        AddEngineHooks(hooks);
        const nb::gil_scoped_release release;
        return cli::Main(argv, hooks);
      },
      nb::arg("argv"),
      "Run the command line (argv[0] is the program's name) and return its exit status.\n\n"
      "SIGINT and SIGTERM are handled by the command itself while it runs.");
}

}  // namespace msprobe::bindings
