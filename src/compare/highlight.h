// Colours of the old face (compare.md 11).
#pragma once

#include <vector>

#include "compare/compare.h"

namespace msprobe::compare {

// Sets highlights, red and yellow. Nothing in md5 mode.
void HighlightRows(std::vector<Row>& rows, Mode mode, const Options& options);

}  // namespace msprobe::compare
