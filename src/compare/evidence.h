// What the record and the files say about each pair, as numbers for the default rules.
#pragma once

#include <vector>

#include "compare/compare.h"
#include "kernels/pair_errors.h"

namespace msprobe::compare {

// Number of elements of a shape text, `[2, 3]` -> 6; -1 when it is none. Saturates at 2^62.
int64_t ElementsOf(std::string_view shape);

// Gates of pairs of which nothing was recorded that could be compared (D1): malformed and absent
// leaves, values and statistics that are missing. Tensors without elements, and those that have no
// storage by nature, agree when their records do (kBothEmpty). To be called before anything is
// read.
void MarkUnrecorded(std::vector<Row>& rows, Mode mode, RuleSet rules);

// Evidence from recorded statistics: maximum, minimum, mean and norm. Infinite and NaN figures are
// left out: classes are judged apart. Nothing is known without numbers on both sides.
// The sketches of the pair add a point of their own: the root mean square of the differences, which
// sees what the other four do not (a permutation, an error in the middle of the range); unequal
// hashes are a difference.
Evidence StatisticsEvidence(const Leaf& target, const Leaf& golden, const SketchPair& sketch = {});

// Evidence from elements; the caller adds the points.
Evidence TensorEvidence(const kernels::PairErrors& errors, DType target, DType golden);

}  // namespace msprobe::compare
