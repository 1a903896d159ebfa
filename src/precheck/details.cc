#include "precheck/details.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/text.h"
#include "report/table.h"

namespace msprobe::precheck {
namespace {

constexpr std::array<std::string_view, 23> kDetailsHeader = {"API Name",
                                                             "Bench Dtype",
                                                             "DEVICE Dtype",
                                                             "Shape",
                                                             "余弦相似度",
                                                             "最大绝对误差",
                                                             "双百指标",
                                                             "双千指标",
                                                             "双万指标",
                                                             "二进制一致错误率",
                                                             "误差均衡性",
                                                             "均方根误差",
                                                             "小值域错误占比",
                                                             "相对误差最大值",
                                                             "相对误差平均值",
                                                             "inf/nan错误率",
                                                             "相对误差错误率",
                                                             "绝对误差错误率",
                                                             "ULP误差最大值",
                                                             "ULP误差平均值",
                                                             "ULP误差大于阈值占比",
                                                             "Status",
                                                             "Message"};

constexpr std::array<std::string_view, 23> kEnglishHeader = {"API Name",
                                                             "Bench Dtype",
                                                             "DEVICE Dtype",
                                                             "Shape",
                                                             "Cosine",
                                                             "Max absolute error",
                                                             "Share below 1%",
                                                             "Share below 0.1%",
                                                             "Share below 0.01%",
                                                             "Binary mismatch rate",
                                                             "Error balance",
                                                             "RMSE",
                                                             "Small-value error share",
                                                             "Max relative error",
                                                             "Mean relative error",
                                                             "inf/nan error rate",
                                                             "Relative error rate",
                                                             "Absolute error rate",
                                                             "Max ULP error",
                                                             "Mean ULP error",
                                                             "Share of ULP errors above limit",
                                                             "Status",
                                                             "Message"};

constexpr std::array<std::string_view, 4> kResultHeader = {"API name", "Forward Test Success",
                                                           "Backward Test Success", "Message"};

// Shortest digits of a float that read back, as NumPy prints a float32.
std::string SingleText(double value) {
  const float f = static_cast<float>(value);
  if (std::isnan(f)) return "nan";
  if (std::isinf(f)) return f > 0 ? "inf" : "-inf";
  const float magnitude = std::fabs(f);
  const bool exponent = magnitude != 0 && (magnitude < 1e-4f || magnitude >= 1e16f);
  char buffer[48];
  const auto r = std::to_chars(buffer, buffer + sizeof(buffer), f,
                               exponent ? std::chars_format::scientific : std::chars_format::fixed);
  std::string out(buffer, r.ptr);
  if (!exponent && out.find('.') == std::string::npos) out += ".0";
  return out;
}

std::string DoubleText(double value, int digits) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (digits < 0) return fmt::format("{:.17g}", value);
  std::array<char, 128> buffer;
  const auto done = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                  std::chars_format::fixed, digits);
  if (done.ec != std::errc()) return fmt::format("{:.{}f}", value, digits);  // beyond the buffer
  return {buffer.data(), done.ptr};
}

}  // namespace

std::string_view StatusText(Status s, Standard standard) {
  switch (s) {
    case Status::kPass:
      return "pass";
    case Status::kWarning:
      return standard == Standard::kOld ? "Warning" : "warning";
    case Status::kError:
      return "error";
    case Status::kSkip:
      return "SKIP";
    case Status::kNotRun:
      return " ";
  }
  return " ";
}

bool StatusFromText(std::string_view text, Status& out) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) {
    return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  });
  if (lower == "pass") {
    out = Status::kPass;
  } else if (lower == "warning") {
    out = Status::kWarning;
  } else if (lower == "error") {
    out = Status::kError;
  } else if (lower == "skip") {
    out = Status::kSkip;
  } else if (lower.find_first_not_of(' ') == std::string::npos) {
    out = Status::kNotRun;
  } else {
    return false;
  }
  return true;
}

Status Worst(std::span<const Status> rows, Status all_skipped) {
  if (rows.empty()) return Status::kNotRun;
  const auto has = [&](Status s) { return std::find(rows.begin(), rows.end(), s) != rows.end(); };
  if (has(Status::kError)) return Status::kError;
  if (has(Status::kWarning)) return Status::kWarning;
  if (has(Status::kPass)) return Status::kPass;
  return all_skipped;
}

void DetailsRow::SetDouble(Column c, double v) { SetSingleOrDouble(c, v, false); }

void DetailsRow::SetSingleOrDouble(Column c, double v, bool single) {
  MetricCell& cell = (*this)[c];
  cell.kind = single ? MetricCell::Kind::kSingle : MetricCell::Kind::kDouble;
  cell.value = v;
}

void DetailsRow::SetInteger(Column c, uint64_t v) {
  MetricCell& cell = (*this)[c];
  cell.kind = MetricCell::Kind::kInteger;
  cell.integer = v;
  cell.value = static_cast<double>(v);
}

void DetailsRow::SetText(Column c, std::string_view v) {
  MetricCell& cell = (*this)[c];
  cell.kind = MetricCell::Kind::kText;
  cell.text = v;
}

void DetailsRow::SetShare(Column c, uint64_t k, uint64_t n) {
  if (n == 0) {
    SetInteger(c, 0);
  } else {
    SetDouble(c, static_cast<double>(k) / static_cast<double>(n));
  }
}

std::string CellText(const MetricCell& cell, const NumberFormat& format) {
  switch (cell.kind) {
    case MetricCell::Kind::kBlank:
      return " ";
    case MetricCell::Kind::kText:
      return cell.text;
    case MetricCell::Kind::kInteger:
      return fmt::format("{}", cell.integer);
    case MetricCell::Kind::kSingle:
      return SingleText(cell.value);
    case MetricCell::Kind::kDouble:
      return DoubleText(cell.value, format.digits);
  }
  return " ";
}

std::span<const std::string_view> DetailsHeader(bool english) {
  return english ? kEnglishHeader : kDetailsHeader;
}
std::span<const std::string_view> ResultHeader() { return kResultHeader; }

void AppendCsvRecord(std::string& out, std::span<const std::string_view> cells) {
  bool first = true;
  for (const std::string_view cell : cells) {
    if (!first) out += ',';
    first = false;
    const bool guard = report::LooksExecutable(cell);
    const bool quote = std::any_of(cell.begin(), cell.end(), [](char c) {
      return c == ',' || c == '"' || c == '\r' || c == '\n';
    });
    if (quote) out += '"';
    if (guard) out += '\'';
    if (!quote) {
      out += cell;
      continue;
    }
    for (const char c : cell) {
      if (c == '"') out += '"';
      out += c;
    }
    out += '"';
  }
  out += "\r\n";
}

void AppendDetailsRow(std::string& out, const DetailsRow& row, Standard standard,
                      const NumberFormat& format) {
  std::array<std::string, kNumColumns> texts;
  std::array<std::string_view, kNumColumns + 3> cells;
  cells[0] = row.name;
  for (size_t k = 0; k < kNumColumns; ++k) {
    texts[k] = CellText(row.cells[k], format);
    cells[k + 1] = texts[k];
  }
  cells[kNumColumns + 1] = StatusText(row.status, standard);
  cells[kNumColumns + 2] = row.message;
  AppendCsvRecord(out, cells);
}

}  // namespace msprobe::precheck
