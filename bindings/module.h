// The list of areas that make up _core. Each area has one file with one Register function: convert,
// release the GIL, call, convert.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "base/log.h"
#include "base/result.h"

namespace msprobe::bindings {

void RegisterCli(nanobind::module_& m);
void RegisterCollect(nanobind::module_& m);
void RegisterCompare(nanobind::module_& m);
void RegisterCulprit(nanobind::module_& m);
void RegisterEngine(nanobind::module_& m);
void RegisterMetrics(nanobind::module_& m);
void RegisterPrecheck(nanobind::module_& m);

// Replays for the search of the culprit (msprobe.precheck.culprit), in this interpreter. Takes the
// GIL, no exceptions. kCancelled: `cancel` was set, which is asked after each call.
Result<std::string> ReplayCalls(const std::string& jobs, const CancelToken& cancel);

// Culprit and CulpritSearch, the parts of a CompareResult.
void BindCulpritResult(nanobind::module_& m);

}  // namespace msprobe::bindings
