// The use case "two entries or two tensor files side by side".
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/tensor_diff.h"
#include "base/result.h"

namespace msprobe::app {

struct DiffOptions {
  std::string target, golden;       // two tensor files, or two dumps with `entry`
  std::string entry, golden_entry;  // of a call or of one of its tensors; golden "" = the same
  DiffLimits limits;
  std::optional<int> axis;  // shown by index; default: SharpestAxis
};

// One tensor or value of both sides.
struct DiffItem {
  std::string name;
  // Statistics as the dumps have them, "" where there is none: dtype, shape, max, min, mean, norm,
  // checksum.
  std::vector<std::string> target, golden;
  std::optional<TensorDiff> tensors;  // both sides have a file
  std::string problem;                // why there is no tensor comparison although files are named
};
extern const std::vector<std::string> kDiffFigures;  // names of the statistics above

struct DiffRun {
  std::vector<DiffItem> items;                        // in the order of the target
  std::vector<std::string> only_target, only_golden;  // names without a counterpart
};

// Errors: those of reading; kNotFound when no such entry is there (with the nearest name).
Result<DiffRun> Diff(const DiffOptions& options);

// For a terminal: the item that differs most in full, the others a line each.
std::string DiffText(const DiffOptions& options, const DiffRun& run);
std::string DiffJson(const DiffOptions& options, const DiffRun& run);
std::string DiffClosingLine(const DiffRun& run);
// The item that differs most; nullptr when there is none.
const DiffItem* WorstItem(const DiffRun& run);

// dump.json or debug.json of a file or folder path; "" when there is neither.
std::string DumpFileOf(const std::string& path);

}  // namespace msprobe::app
