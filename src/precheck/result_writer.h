// The two growing files of a pre-check run, accuracy_checking_details_{ts}.csv and
// accuracy_checking_result_{ts}.csv.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "precheck/details.h"

namespace msprobe::precheck {

struct ApiResult {
  std::string name;  // full name without direction
  Status forward = Status::kSkip, backward = Status::kSkip;
  std::string message;  // shown when a status is SKIP
  std::vector<DetailsRow> rows;
  std::vector<DetailsRow> baseline_rows{};  // with WriterOptions::baseline
};

struct WriterOptions {
  Standard standard = Standard::kNew;
  NumberFormat format;
  bool english = false;
  bool baseline = false;  // a third file, accuracy_checking_details_baseline_{ts}.csv
};

// Details of an API are written before its result, each with one write, so that a run that dies
// leaves at most details without a result, or a torn last record; Resume() removes both. One writer
// per file; not thread-safe.
class ResultWriter {
 public:
  // New files with the first free time stamp not before `unix_seconds`; the folder exists. Errors:
  // as AtomicFile.
  static Result<ResultWriter> Create(const std::string& dir, int64_t unix_seconds,
                                     const WriterOptions& options);
  // Goes on with files of an earlier run (of any release). APIs whose result has no details are to
  // be run again: their result is removed; with a baseline also APIs without rows there.
  // `retry_skips`: the same for APIs that were SKIP both
  // ways. Errors: those of the csv reader; kMalformed when a file has no header.
  static Result<ResultWriter> Resume(const std::string& result_csv, bool retry_skips,
                                     const WriterOptions& options);
  ResultWriter(ResultWriter&& other) noexcept;
  ResultWriter& operator=(ResultWriter&& other) noexcept;
  ~ResultWriter();

  // Errors: kNoSpace, kIo.
  msprobe::Status Append(const ApiResult& api);

  const std::vector<std::string>& done() const { return done_; }  // names to pass over
  const std::string& result_path() const { return result_path_; }
  const std::string& details_path() const { return details_path_; }
  const std::string& baseline_path() const { return baseline_path_; }  // empty without one
  const std::string& stamp() const { return stamp_; }                  // 14 digits

 private:
  ResultWriter() = default;
  msprobe::Status OpenAll();
  std::string PathOf(const std::string& dir, std::string_view kind) const;
  int result_fd_ = -1, details_fd_ = -1, baseline_fd_ = -1;
  WriterOptions options_;
  std::string result_path_, details_path_, baseline_path_, stamp_;
  std::vector<std::string> done_;
};

}  // namespace msprobe::precheck
