// The console script's way into the command line.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/module.h"
#include "cli/main.h"

namespace msprobe::bindings {

void RegisterCli(nanobind::module_& m) {
  namespace nb = nanobind;
  m.def(
      "main",
      [](const std::vector<std::string>& argv) {
        const nb::gil_scoped_release release;
        return cli::Main(argv);
      },
      nb::arg("argv"),
      "Run the command line (argv[0] is the program's name) and return its exit status.\n\n"
      "SIGINT and SIGTERM are handled by the command itself while it runs.");
}

}  // namespace msprobe::bindings
