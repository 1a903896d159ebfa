// Metrics of the user's own (compare.md 17.3): columns behind the six metrics of tensor mode, each
// a function of two tensors that the host of this library runs.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "compare/compare.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

namespace msprobe::app {

// A whole tensor, row-major. Element types that NumPy lacks (bfloat16, float8, complex32) come as
// float32 and complex64.
struct UserTensor {
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<std::byte> bytes;
};

// A number, or a text where `text` is not empty; `problem`: why there is no number.
struct UserCell {
  double number = 0;
  std::string text, problem;
};

struct UserMetrics {
  std::vector<std::string> columns;
  // One cell per column. Never called by two threads at a time; must not throw.
  std::function<std::vector<UserCell>(const UserTensor& target, const UserTensor& golden)> call;
  std::mutex mutex;
};

// What the metrics gave for one pair of ranks: rows as in the Comparison. A row without cells was
// not compared.
struct UserColumns {
  std::vector<std::string> names;
  std::vector<std::vector<UserCell>> rows;
};

// Errors, kConfig: a name that is empty, too long, not printable, one of the report or twice, or
// that a spreadsheet would run.
Status CheckUserColumns(const std::vector<std::string>& names);

// Runs the metrics over the rows that were compared, in order; one warning per metric that fails.
// A file that cannot be read any more gives `error: …` cells. Error: kCancelled.
Result<UserColumns> RunUserMetrics(UserMetrics& metrics, const compare::Input& input,
                                   const compare::Comparison& comparison, LogSink& log,
                                   const CancelToken* cancel);

}  // namespace msprobe::app
