#include "bindings/module.h"

namespace msprobe::bindings {

void RegisterCollect(nanobind::module_& m) { static_cast<void>(m); }

}  // namespace msprobe::bindings
