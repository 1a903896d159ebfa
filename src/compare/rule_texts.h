// The page that --explain-rules prints.
#pragma once

#include <string>
#include <string_view>

#include "compare/compare.h"

namespace msprobe::compare {

// All rule sets with their limits, as Markdown.
std::string ExplainRules();

}  // namespace msprobe::compare
