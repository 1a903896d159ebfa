// The final verdict: details of a run on one device (NPU) judged against those of another (GPU).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "precheck/details.h"
#include "precheck/lists.h"

namespace msprobe::precheck {

// A details file as read: columns by title (either language, any order), rows in file order. Blank
// and absent metrics stay apart from zero.
struct DetailsTable {
  struct Metric {
    bool blank = true;
    double value = 0;  // may be NaN or infinite
  };
  struct Row {
    std::string name, device_dtype, shape;
    std::string message;  // of rows that did not pass or are samples; others are not quoted
    std::string inputs;   // checksum of the inputs, from Message (decisions 51)
    Status status = Status::kNotRun;
    bool has_status = false;

    Metric operator[](Column c) const {
      const size_t k = static_cast<size_t>(c);
      return {(filled_ >> k & 1u) == 0, values_[k]};
    }
    void Clear() {
      for (std::string* text : {&name, &device_dtype, &shape, &message, &inputs}) text->clear();
      status = Status::kNotRun;
      has_status = false;
      filled_ = 0;
    }
    void Set(Column c, double value) {
      const size_t k = static_cast<size_t>(c);
      filled_ |= 1u << k;
      values_[k] = value;
    }

   private:
    uint32_t filled_ = 0;
    std::array<double, kNumColumns> values_{};
  };
  std::vector<Row> rows;
};

// True for the Message of a row that was compared by distribution: random operators and dropout
// have no metrics, their own status is their verdict.
bool IsJudgedAsSample(std::string_view message);

// Errors: those of the CSV reader; kMalformed with the titles that are missing (14 are needed); a
// cell that is no number: kMalformed with line and column title.
Result<DetailsTable> ReadDetails(const std::string& path);
// The same, row by row: `row` lives until the call returns; an error of `on_row` ends the reading.
using OnDetailsRow = std::function<msprobe::Status(const DetailsTable::Row& row)>;
using OnBytes = std::function<void(uint64_t done, uint64_t total)>;
msprobe::Status ReadDetailsRows(const std::string& path, const OnDetailsRow& on_row,
                                const OnBytes& on_bytes = {});

// Why a row was not judged.
enum class SkipReason : uint8_t {
  kNone,
  kName,
  kDuplicate,
  kNoGpuRow,
  kNoNpuRow,
  kSkippedBefore,
  kDtype,
  kEmpty,
  kNoData,
  kNoGpuData,
};

struct Ratio {
  bool filled = false;
  double value = 0;
  bool has_verdict = false;
  bool error = false;
};

// One row of the details output.
struct JudgedRow {
  std::string name;
  std::optional<Algorithm> algorithm;  // absent for rows that were not judged
  Status status = Status::kSkip;
  SkipReason reason = SkipReason::kNone;
  std::array<Ratio, 5> ratios;  // small value, RMSE, max relative, mean relative, balance
  std::array<Ratio, 3> rates;   // inf/nan, relative, absolute
  Ratio binary;
  Ratio ulp_mean, ulp_share, ulp_ratio;  // the verdict stands with ulp_ratio
  Ratio thousandth;
  std::string message;
  bool npu_message_copied = false;
};

struct ApiVerdict {
  std::string name;  // without direction, or the whole key when it has no known form
  Status forward = Status::kNotRun, backward = Status::kNotRun;
  std::string message;
};

struct PrecisionComparison {
  std::vector<JudgedRow> rows;   // as in the NPU file; rows that only the GPU file has come last
  std::vector<ApiVerdict> apis;  // in order of first appearance
  uint64_t other_inputs = 0;     // pairs whose input checksums differ
  std::string first_other_inputs;
};

// By key, linear. Never fails: what cannot be judged is a SKIP row with its reason. Default rules:
// a finding of the Q rules (q_rules.h) in a row of the first file, which the second lacks, worsens
// the verdict of that row.
//
// Only the figures of the second file that judging needs are kept (about 200 bytes a row with its
// name), so first every row of it is given, then every row of the first file, then Finish.
class FinalJudge {
 public:
  using OnJudged = std::function<msprobe::Status(const JudgedRow& row)>;

  FinalJudge(Standard standard, Rules rules);
  ~FinalJudge();
  void AddGpu(const DetailsTable::Row& row);
  msprobe::Status JudgeNpu(const DetailsTable::Row& row, const OnJudged& on_judged);
  msprobe::Status Finish(const OnJudged& on_judged);  // rows that only the second file has

  std::vector<ApiVerdict> Apis() const;  // in order of first appearance
  uint64_t other_inputs() const;
  const std::string& first_other_inputs() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// All of it in memory.
PrecisionComparison JudgeDetails(const DetailsTable& npu, const DetailsTable& gpu,
                                 Standard standard, Rules rules = Rules::kBase);

// The two output files as text, piece by piece: the head with byte-order mark, then records.
std::string PrecisionDetailsHead(bool english);
std::span<const std::string_view> PrecisionDetailsTitles();  // English
void AppendPrecisionRow(std::string& out, const JudgedRow& row, const NumberFormat& format);
std::string PrecisionResultHead();
void AppendVerdict(std::string& out, const ApiVerdict& api);

}  // namespace msprobe::precheck
