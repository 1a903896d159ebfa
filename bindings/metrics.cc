#include "bindings/module.h"

namespace msprobe::bindings {

void RegisterMetrics(nanobind::module_& m) { static_cast<void>(m); }

}  // namespace msprobe::bindings
