// The output files of the final comparison.
#include <cmath>

#include "precheck/precision_compare.h"

namespace msprobe::precheck {
namespace {

constexpr std::array<std::string_view, 28> kHeader = {"API Name",
                                                      "小值域错误比值",
                                                      "小值域判定结果",
                                                      "均方根误差比值",
                                                      "均方根误差判定结果",
                                                      "相对误差最大值比值",
                                                      "相对误差最大值判定结果",
                                                      "相对误差平均值比值",
                                                      "相对误差平均值判定结果",
                                                      "误差均衡性比值",
                                                      "误差均衡性判定结果",
                                                      "inf/nan错误率",
                                                      "inf/nan判定结果",
                                                      "相对误差错误率",
                                                      "相对误差判定结果",
                                                      "绝对误差错误率",
                                                      "绝对误差判定结果",
                                                      "二进制一致错误率",
                                                      "二进制一致错误率判定结果",
                                                      "ULP误差平均值",
                                                      "ULP误差大于阈值占比",
                                                      "ULP误差大于阈值占比比值",
                                                      "ULP误差判定结果",
                                                      "双千指标",
                                                      "双千指标判定结果",
                                                      "比对结果",
                                                      "比对算法",
                                                      "Message"};

constexpr std::array<std::string_view, 28> kEnglishHeader = {"API Name",
                                                             "Small-value error ratio",
                                                             "Small-value verdict",
                                                             "RMSE ratio",
                                                             "RMSE verdict",
                                                             "Max relative error ratio",
                                                             "Max relative error verdict",
                                                             "Mean relative error ratio",
                                                             "Mean relative error verdict",
                                                             "Error balance ratio",
                                                             "Error balance verdict",
                                                             "inf/nan error rate",
                                                             "inf/nan verdict",
                                                             "Relative error rate",
                                                             "Relative error verdict",
                                                             "Absolute error rate",
                                                             "Absolute error verdict",
                                                             "Binary mismatch rate",
                                                             "Binary mismatch verdict",
                                                             "Mean ULP error",
                                                             "Share of ULP errors above limit",
                                                             "ULP share ratio",
                                                             "ULP verdict",
                                                             "Share below 0.1%",
                                                             "0.1% verdict",
                                                             "Final result",
                                                             "Algorithm",
                                                             "Message"};

constexpr std::array<std::string_view, 4> kResultHeaderFinal = {"API Name", "Forward Test Success",
                                                                "Backward Test Success", "Message"};

class Cells {
 public:
  explicit Cells(const NumberFormat& format) : format_(format) { cells_.reserve(28); }
  void Text(std::string_view text) {
    cells_.emplace_back(text.empty() ? std::string_view() : text);
  }
  void Value(const Ratio& ratio) {
    if (!ratio.filled) return Text(" ");
    MetricCell cell;
    cell.kind = MetricCell::Kind::kDouble;
    cell.value = ratio.value;
    cells_.push_back(CellText(cell, format_));
  }
  void Verdict(const Ratio& ratio) {
    Text(!ratio.has_verdict ? " " : ratio.error ? "error" : "pass");
  }
  void Both(const Ratio& ratio) {
    Value(ratio);
    Verdict(ratio);
  }
  void Append(std::string& out) const {
    std::vector<std::string_view> views(cells_.begin(), cells_.end());
    AppendCsvRecord(out, views);
  }

 private:
  NumberFormat format_;
  std::vector<std::string> cells_;
};

}  // namespace

std::string PrecisionDetailsHead(bool english) {
  std::string out(kByteOrderMark);
  AppendCsvRecord(out, english ? kEnglishHeader : kHeader);
  return out;
}

void AppendPrecisionRow(std::string& out, const JudgedRow& row, const NumberFormat& format) {
  Cells cells(format);
  cells.Text(row.name);
  for (const Ratio& ratio : row.ratios) cells.Both(ratio);
  for (const Ratio& rate : row.rates) cells.Both(rate);
  cells.Both(row.binary);
  cells.Value(row.ulp_mean);
  cells.Value(row.ulp_share);
  cells.Both(row.ulp_ratio);
  cells.Both(row.thousandth);
  cells.Text(StatusText(row.status, Standard::kNew));
  cells.Text(row.algorithm.has_value() ? AlgorithmName(*row.algorithm) : " ");
  cells.Text(row.message);
  cells.Append(out);
}

std::span<const std::string_view> PrecisionDetailsTitles() { return kEnglishHeader; }

std::string PrecisionResultHead() {
  std::string out(kByteOrderMark);
  AppendCsvRecord(out, kResultHeaderFinal);
  return out;
}

void AppendVerdict(std::string& out, const ApiVerdict& api) {
  const std::array<std::string_view, 4> cells = {api.name, StatusText(api.forward, Standard::kNew),
                                                 StatusText(api.backward, Standard::kNew),
                                                 api.message};
  AppendCsvRecord(out, cells);
}

}  // namespace msprobe::precheck
