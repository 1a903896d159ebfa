// The list of areas that make up _core. Each area has one file with one Register function: convert,
// release the GIL, call, convert.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "base/result.h"

namespace msprobe::bindings {

void RegisterCli(nanobind::module_& m);
void RegisterCollect(nanobind::module_& m);
void RegisterCompare(nanobind::module_& m);
void RegisterCulprit(nanobind::module_& m);
void RegisterMetrics(nanobind::module_& m);
void RegisterPrecheck(nanobind::module_& m);

// Replays for the search of the culprit (msprobe.precheck.culprit). Takes the GIL, no exceptions.
Result<std::string> ReplayCalls(const std::string& jobs);

}  // namespace msprobe::bindings
