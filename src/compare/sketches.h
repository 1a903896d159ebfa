// What recorded sketches and hashes say of pairs (culprit.md 5).
#pragma once

#include <string>
#include <vector>

#include "compare/store.h"

namespace msprobe::compare {

// Sets `sketch` of the rows with both leaves, and notes what could not be compared: sketches that
// lie, that are of another k or seed, or of parts only. True when some row has a distance, or both
// sides have sketches that do not meet.
bool CompareSketches(const Comparison::Store& store, std::vector<Row>& rows,
                     std::vector<std::string>& notes);

}  // namespace msprobe::compare
