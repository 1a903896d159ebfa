// The rows that -lm brought together as a file for -dm.
#pragma once

#include <string>

#include "compare/compare.h"

namespace msprobe::app {

// Writes `target name: golden name` per row with a target, in YAML; "N/A" where there is no golden
// row. Names that are no UTF-8 cannot stand in YAML and are left out. The file appears whole or not
// at all; errors are those of writing.
Status WriteMapping(const compare::Comparison& comparison, const std::string& path);

}  // namespace msprobe::app
