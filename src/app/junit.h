// `--junit FILE`: a comparison as test results for CI: a suite per rank, a test per entry.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "app/compare_inputs.h"
#include "base/file.h"
#include "base/result.h"
#include "compare/compare.h"

namespace msprobe::app {

struct CompareRun;

// A test fails when a row of its entry is an error, and is skipped when no row could be compared;
// warnings and rows that could not be compared are its output. A rank that is missing or failed is
// a suite with one test in error. Where the operator at fault was searched the first test of a
// suite is "culprit": it fails with what was found. The file appears with Finish().
class JunitReport {
 public:
  // Errors: those of AtomicFile.
  static Result<std::unique_ptr<JunitReport>> Create(const std::string& path);
  void Resize(size_t jobs) { suites_.resize(jobs); }
  struct Suite {
    std::string tests;  // XML
    uint64_t count = 0, failures = 0, skipped = 0;
  };
  static Suite SuiteOf(const RankJob& job, const compare::Comparison& comparison,
                       compare::Face face);
  // Thread-safe for different `index` < jobs.
  void Add(size_t index, Suite suite) { suites_[index] = std::move(suite); }
  Status Finish(const CompareRun& run);

 private:
  explicit JunitReport(AtomicFile file) : file_(std::move(file)) {}
  AtomicFile file_;
  std::vector<Suite> suites_;
};

}  // namespace msprobe::app
