// Tensor mode: files of the pairs, the gates of compare.md 7.2, and the metrics in one streaming
// pass.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "compare/compare.h"

namespace msprobe::compare {

struct TensorFolders {
  std::string target, golden;  // the dump_tensor_data folders
  // Files read instead of recorded ones, by data_name; null: none.
  std::shared_ptr<const FileMap> target_files = {}, golden_files = {};
  PieceJournal* journal = nullptr;  // may be null
};

// Fills gate, unreadable, dtype_differs, class_differs, relative_l2 and metrics of every row that
// has a partner and no gate yet, and under the default rules its evidence. A file that cannot be
// read concerns its row only. Work goes over options.workers threads, the largest pairs first, and
// large pairs in pieces; results do not depend on the number of threads. Contiguous tensors are
// read in blocks; only layouts that cannot be are read whole, up to options.memory_limit bytes (0:
// 4 GiB), one at a time when large. A cancelled run keeps what it has: rows that were not reached
// are kNotReached; if that is all of them, the error is kCancelled.
Status CompareTensors(std::vector<Row>& rows, const TensorFolders& folders, const Options& options,
                      ProgressSink& progress, const CancelToken* cancel);

}  // namespace msprobe::compare
