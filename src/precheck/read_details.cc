// Reading accuracy_checking_details files of every generation and language.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "base/text.h"
#include "precheck/precision_compare.h"
#include "report/table.h"

namespace msprobe::precheck {
namespace {

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
std::array<int, 23> FindTitles(const std::vector<std::string>& columns) {
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

}  // namespace

Result<DetailsTable> ReadDetails(const std::string& path) {
  MSPROBE_ASSIGN(const report::TextTable table, report::ReadCsv(path));
  const std::array<int, 23> at = FindTitles(table.columns);
  std::string missing;
  const auto require = [&](size_t k) {
    if (at[k] >= 0) return;
    if (!missing.empty()) missing += ", ";
    missing += DetailsHeader(false)[k];
  };
  require(0);
  for (const Column c : kRequired) require(static_cast<size_t>(c) + 1);
  if (!missing.empty()) {
    return Error(ErrorCode::kMalformed, fmt::format("lacks the columns {}", missing))
        .At(path)
        .Hint("a file accuracy_checking_details_<time>.csv of the pre-check is expected");
  }
  DetailsTable out;
  out.rows.reserve(table.rows.size());
  for (size_t r = 0; r < table.rows.size(); ++r) {
    const auto cell = [&](size_t k) -> std::string_view {
      if (at[k] < 0 || static_cast<size_t>(at[k]) >= table.rows[r].size()) return {};
      return table.rows[r][static_cast<size_t>(at[k])];
    };
    DetailsTable::Row row;
    std::string_view name = cell(0);
    if (name.starts_with('\'') && report::LooksExecutable(name.substr(1))) name.remove_prefix(1);
    row.name = name;
    row.device_dtype = IsBlank(cell(2)) ? std::string() : std::string(cell(2));
    row.shape = cell(3);
    row.message = cell(22);
    row.has_status = !IsBlank(cell(21)) && StatusFromText(cell(21), row.status);
    for (size_t k = static_cast<size_t>(Column::kCosine); k < kNumColumns; ++k) {
      const std::string_view text = Trim(cell(k + 1));
      if (text.empty()) continue;
      if (!ParsePyFloat(text, row.metrics[k].value)) {
        return Error(ErrorCode::kMalformed,
                     fmt::format("the cell \"{}\" of row {} is not a number", text, r + 2))
            .At(path)
            .Key(std::string(DetailsHeader(false)[k + 1]));
      }
      row.metrics[k].blank = false;
    }
    out.rows.push_back(std::move(row));
  }
  return out;
}

}  // namespace msprobe::precheck
