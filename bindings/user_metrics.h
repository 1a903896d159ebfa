// Python functions as metrics of a comparison.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>

#include "app/user_metrics.h"

namespace msprobe::bindings {

// `source`: what msprobe._user_metrics.load takes. Raises ConfigError. Needs the GIL.
std::shared_ptr<app::UserMetrics> LoadUserMetrics(const nanobind::object& source);

// The same for the command line: takes the GIL, no exceptions.
Result<std::shared_ptr<app::UserMetrics>> MetricsOfFolder(const std::string& folder);

}  // namespace msprobe::bindings
