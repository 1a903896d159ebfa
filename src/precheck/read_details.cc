// Reading accuracy_checking_details files of every generation and language.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "base/text.h"
#include "precheck/precision_compare.h"
#include "report/table.h"

namespace msprobe::precheck {
namespace {

constexpr size_t kShownText = 60;  // bytes of a wrong cell in a message

// Columns that a file must have (besides the API name), by position in the details header.
constexpr std::array<Column, 13> kRequired = {
    Column::kDeviceDtype,  Column::kSmallValue,   Column::kRmse,      Column::kMaxRel,
    Column::kMeanRel,      Column::kBalance,      Column::kErrorRate, Column::kInfNan,
    Column::kRelativeRate, Column::kAbsoluteRate, Column::kMeanUlp,   Column::kUlpShare,
    Column::kThousandth};

std::string Lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) {
    return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  });
  return out;
}

// Index in the file of each of the 23 titles; -1 when absent.
std::array<int, 23> FindTitles(std::span<const std::string> columns) {
  std::unordered_map<std::string, int> by_title;
  for (size_t k = 0; k < columns.size(); ++k)
    by_title.emplace(Lower(columns[k]), static_cast<int>(k));
  std::array<int, 23> found;
  found.fill(-1);
  for (const bool english : {false, true}) {
    const auto titles = DetailsHeader(english);
    for (size_t k = 0; k < titles.size(); ++k) {
      const auto it = by_title.find(Lower(titles[k]));
      if (it != by_title.end() && found[k] < 0) found[k] = it->second;
    }
  }
  return found;
}

bool IsBlank(std::string_view cell) {
  return cell.find_first_not_of(" \t") == std::string_view::npos;
}

std::string_view Trim(std::string_view text) {
  const size_t a = text.find_first_not_of(" \t");
  if (a == std::string_view::npos) return {};
  return text.substr(a, text.find_last_not_of(" \t") - a + 1);
}

// The hexadecimal digits behind "inputs=".
std::string_view InputsOf(std::string_view message) {
  constexpr std::string_view kKey = "inputs=";
  const size_t begin = message.find(kKey);
  if (begin == std::string_view::npos) return {};
  message.remove_prefix(begin + kKey.size());
  return message.substr(0, message.find_first_not_of("0123456789abcdef"));
}

bool ReadNumber(std::string_view text, double& out) {
  if (text.front() >= '0' && text.front() <= '9') {
    const auto r = std::from_chars(text.data(), text.data() + text.size(), out);
    if (r.ec == std::errc() && r.ptr == text.data() + text.size()) return true;
  }
  return ParsePyFloat(text, out);
}

class Reader final : public report::CsvRows {
 public:
  Reader(const OnDetailsRow& on_row, const OnBytes& on_bytes)
      : on_row_(on_row), on_bytes_(on_bytes) {}
  bool has_header = false;

  void Progress(uint64_t done, uint64_t total) override {
    if (on_bytes_) on_bytes_(done, total);
  }

  msprobe::Status Header(std::span<const std::string> columns) override {
    has_header = true;
    at_ = FindTitles(columns);
    std::string missing;
    const auto require = [&](size_t k) {
      if (at_[k] >= 0) return;
      if (!missing.empty()) missing += ", ";
      missing += DetailsHeader(false)[k];
    };
    require(0);
    for (const Column c : kRequired) require(static_cast<size_t>(c) + 1);
    if (missing.empty()) return {};
    return Error(ErrorCode::kMalformed, fmt::format("lacks the columns {}", missing))
        .Hint("a file accuracy_checking_details_<time>.csv of the pre-check is expected");
  }

  msprobe::Status Row(std::span<const std::string> cells, uint32_t line) override {
    const auto cell = [&](size_t k) -> std::string_view {
      return at_[k] < 0 ? std::string_view() : cells[static_cast<size_t>(at_[k])];
    };
    DetailsTable::Row& row = row_;
    row.Clear();
    std::string_view name = cell(0);
    if (name.starts_with('\'') && report::LooksExecutable(name.substr(1))) name.remove_prefix(1);
    row.name = name;
    if (!IsBlank(cell(2))) row.device_dtype = cell(2);
    row.shape = cell(3);
    row.has_status = !IsBlank(cell(21)) && StatusFromText(cell(21), row.status);
    if (!row.has_status || row.status != Status::kPass || IsJudgedAsSample(cell(22)))
      row.message = cell(22);
    row.inputs = InputsOf(cell(22));
    for (size_t k = static_cast<size_t>(Column::kCosine); k < kNumColumns; ++k) {
      const std::string_view text = Trim(cell(k + 1));
      if (text.empty()) continue;
      double value = 0;
      if (!ReadNumber(text, value)) {
        return Error(ErrorCode::kMalformed,
                     fmt::format("the cell \"{}\" is not a number", text.substr(0, kShownText)))
            .AtLine(line, 0)
            .Key(std::string(DetailsHeader(false)[k + 1]));
      }
      row.Set(static_cast<Column>(k), value);
    }
    return on_row_(row);
  }

 private:
  const OnDetailsRow& on_row_;
  const OnBytes& on_bytes_;
  std::array<int, 23> at_{};
  DetailsTable::Row row_;
};

}  // namespace

msprobe::Status ReadDetailsRows(const std::string& path, const OnDetailsRow& on_row,
                                const OnBytes& on_bytes) {
  Reader reader(on_row, on_bytes);
  MSPROBE_TRY(report::ReadCsvRows(path, reader));
  if (!reader.has_header) {
    return Error(ErrorCode::kMalformed, "the file is empty")
        .At(path)
        .Hint("a file accuracy_checking_details_<time>.csv of the pre-check is expected");
  }
  return {};
}

Result<DetailsTable> ReadDetails(const std::string& path) {
  DetailsTable table;
  const auto keep = [&](const DetailsTable::Row& row) {
    table.rows.push_back(row);
    return msprobe::Status();
  };
  MSPROBE_TRY(ReadDetailsRows(path, keep));
  return table;
}

}  // namespace msprobe::precheck
