// Where the two runs part: the first entry whose own inputs are right and whose output is wrong.
#pragma once

#include <optional>
#include <vector>

#include "compare/store.h"

namespace msprobe::compare {

// Entries are taken in order of execution: forward calls as the file has them, then backward calls,
// then gradients. A row is wrong when either face's verdict says so; a call with another scalar
// argument is a cause by itself. When every wrong entry has wrong inputs, the first wrong row is
// given. The reason says so, and also when the report of `face` passes the row.
// Under the default rules the entry is the first with a finding that follows from nothing before
// it.
std::optional<FirstBad> FindFirstBad(const std::vector<Row>& rows, const Side& target, Mode mode,
                                     const Options& options);

}  // namespace msprobe::compare
