// Verdicts: the rule engine of the new face (compare.md 10.4), the words of the old one (10.1
// to 10.3).
#pragma once

#include <vector>

#include "compare/compare.h"

namespace msprobe::compare {

// Rows of one target entry: [first, last).
struct RowGroup {
  size_t first = 0, last = 0;
};
// Groups of the rows with a target, in order; golden-only rows are in none.
std::vector<RowGroup> GroupRows(const std::vector<Row>& rows);

struct Side;

// Sets rules, findings, verdict, accuracy, result and uncompared of every row, for both faces.
// Limits are tested on unrounded values (D8). `target` gives entry names.
void JudgeRows(std::vector<Row>& rows, const Side& target, Mode mode, const Options& options);

// Words of both faces, counted.
Counts CountRows(const std::vector<Row>& rows, Mode mode, const Options& options);

// Operators whose results say nothing: `empty`, `numpy`, ….
bool IsExempt(const Row& row);

}  // namespace msprobe::compare
