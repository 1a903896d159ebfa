// What the pre-check judges by, for a person.
#pragma once

#include <string>

#include "precheck/lists.h"

namespace msprobe::precheck {

// Algorithms, the operators they belong to, steps and limits with their sources, one item a line;
// read from the very tables that judge.
std::string ExplainRules(Standard standard, Rules rules);

}  // namespace msprobe::precheck
