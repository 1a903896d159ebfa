// The rows of accuracy_checking_details_{ts}.csv and accuracy_checking_result_{ts}.csv: columns,
// cells, CSV records.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "precheck/lists.h"

namespace msprobe::precheck {

enum class Status : uint8_t { kPass, kWarning, kError, kSkip, kNotRun };

// "pass", "warning" ("Warning" in the old spelling), "error", "SKIP", " ".
std::string_view StatusText(Status s, Standard standard);
// Any case; false when it is none of them. An empty text is kNotRun.
bool StatusFromText(std::string_view text, Status& out);
// error > warning > pass; SKIP rows change nothing; nothing but SKIP: `all_skipped`. Empty:
// kNotRun.
Status Worst(std::span<const Status> rows, Status all_skipped);

// The twenty cells between API name and Status, in file order.
enum class Column : uint8_t {
  kBenchDtype,
  kDeviceDtype,
  kShape,
  kCosine,
  kMaxAbs,
  kHundredth,
  kThousandth,
  kTenThousandth,
  kErrorRate,
  kBalance,
  kRmse,
  kSmallValue,
  kMaxRel,
  kMeanRel,
  kInfNan,
  kRelativeRate,
  kAbsoluteRate,
  kMaxUlp,
  kMeanUlp,
  kUlpShare,
};
inline constexpr size_t kNumColumns = 20;

// One metric cell: blank, an integer, a value in single or in double precision, or a text (first
// three columns).
struct MetricCell {
  enum class Kind : uint8_t { kBlank, kText, kInteger, kSingle, kDouble };
  Kind kind = Kind::kBlank;
  double value = 0;
  uint64_t integer = 0;
  std::string text;
};

struct DetailsRow {
  std::string name;  // full name with .forward.output.0
  std::array<MetricCell, kNumColumns> cells;
  Status status = Status::kSkip;
  std::string message;
  bool is_relative = false;  // the status comes from cosine or shares of relative errors only

  MetricCell& operator[](Column c) { return cells[static_cast<size_t>(c)]; }
  const MetricCell& operator[](Column c) const { return cells[static_cast<size_t>(c)]; }
  void SetDouble(Column c, double v);
  void SetSingleOrDouble(Column c, double v, bool single);
  void SetInteger(Column c, uint64_t v);
  void SetText(Column c, std::string_view v);
  // A share k / n; the integer 0 over an empty set (0/0), as upstream writes it.
  void SetShare(Column c, uint64_t k, uint64_t n);
};

// How numbers are written. digits < 0: 17 significant digits. 0 … 20: fixed point with that many
// decimals for doubles and the shortest text that reads back for single precision (14 is upstream's
// form).
struct NumberFormat {
  int digits = -1;
};
std::string CellText(const MetricCell& cell, const NumberFormat& format);

std::span<const std::string_view> DetailsHeader(bool english);  // 23 titles
std::span<const std::string_view> ResultHeader();               // 4 titles

// One CSV record with CR LF; a cell that a spreadsheet could run gets a leading apostrophe.
void AppendCsvRecord(std::string& out, std::span<const std::string_view> cells);
void AppendDetailsRow(std::string& out, const DetailsRow& row, Standard standard,
                      const NumberFormat& format);

inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace msprobe::precheck
