#include "bindings/module.h"

NB_MODULE(_core, m) {
  using namespace msprobe::bindings;
  m.attr("__version__") = MSPROBE_VERSION;
  RegisterCli(m);
  RegisterCollect(m);
  RegisterCompare(m);
  RegisterCulprit(m);
  RegisterEngine(m);
  RegisterMetrics(m);
  RegisterPrecheck(m);
}
