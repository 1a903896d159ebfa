#include "app/merge_reports.h"

#include <dirent.h>
#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/file.h"
#include "report/table.h"

namespace msprobe::app {
namespace {

struct ReportFile {
  std::string path;
  int64_t step = -1, rank = 0;
  std::string stamp;  // 14 digits
  int64_t part = 0;   // of a csv in parts
  bool csv = false;
};

bool TakeText(std::string_view& rest, std::string_view text) {
  if (!rest.starts_with(text)) return false;
  rest.remove_prefix(text.size());
  return true;
}

bool TakeDigits(std::string_view& rest, std::string& out) {
  const size_t n = std::min(rest.find_first_not_of("0123456789"), rest.size());
  if (n == 0 || n > 18) return false;
  out = rest.substr(0, n);
  rest.remove_prefix(n);
  return true;
}

// compare_result[_step<s>]_rank<n>[-rank<n>]_<14 digits>[_part_<k>].xlsx or .csv.
std::optional<ReportFile> ParseName(std::string_view name) {
  ReportFile out;
  std::string digits;
  if (!TakeText(name, "compare_result_")) return std::nullopt;
  if (TakeText(name, "step")) {
    if (!TakeDigits(name, digits) || !TakeText(name, "_")) return std::nullopt;
    out.step = std::stoll(digits);
  }
  if (!TakeText(name, "rank") || !TakeDigits(name, digits)) return std::nullopt;
  out.rank = std::stoll(digits);
  if (TakeText(name, "-rank") && !TakeDigits(name, digits)) return std::nullopt;
  if (!TakeText(name, "_") || !TakeDigits(name, out.stamp) || out.stamp.size() != 14) {
    return std::nullopt;
  }
  if (TakeText(name, "_part_")) {
    if (!TakeDigits(name, digits)) return std::nullopt;
    out.part = std::stoll(digits);
  }
  out.csv = name == ".csv";
  if (!out.csv && name != ".xlsx") return std::nullopt;
  return out;
}

Result<std::vector<std::string>> ListNames(const std::string& dir) {
  DIR* handle = opendir(dir.c_str());
  if (handle == nullptr) return ErrnoError(errno, "open", dir);
  std::vector<std::string> out;
  while (const dirent* entry = readdir(handle)) out.emplace_back(entry->d_name);
  closedir(handle);
  std::sort(out.begin(), out.end());
  return out;
}

struct ModeInfo {
  std::string_view name;
  std::string_view mark;  // a column that only this mode has
  std::vector<std::string_view> metrics;
};

const std::vector<ModeInfo>& Modes() {
  static const std::vector<ModeInfo> modes = {
      {"tensor",
       "Cosine",
       {"Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr", "One Thousandth Err Ratio",
        "Five Thousandths Err Ratio", kConsistentColumn}},
      {"statistics",
       "Max diff",
       {"Max diff", "Min diff", "Mean diff", "L2norm diff", "MaxRelativeErr", "MinRelativeErr",
        "MeanRelativeErr", "NormRelativeErr", kConsistentColumn}},
      {"md5", "NPU MD5", {kResultColumn, kConsistentColumn}}};
  return modes;
}

// Columns that may be asked for beside the metrics of the mode.
constexpr std::array<std::string_view, 2> kVerdicts = {kResultColumn, kAccuracyColumn};

// Estimates of dumps with sketches, in reports of statistics and checksums; error bars have a sheet
// when they are asked for.
constexpr std::array<std::string_view, 4> kSketches = {"Sketch EucDist", "Sketch RelativeErr",
                                                       "Sketch Cosine", kBitEqualColumn};
constexpr std::array<std::string_view, 3> kSketchBars = {
    "Sketch EucDist Bar", "Sketch RelativeErr Bar", "Sketch Cosine Bar"};

template <class List>
bool Contains(const List& list, std::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

bool IsSketch(std::string_view metric) {
  return Contains(kSketches, metric) || Contains(kSketchBars, metric);
}

class NamePatterns {
 public:
  explicit NamePatterns(const std::vector<std::string>& patterns) : patterns_(patterns) {}

  // Index of the first pattern that `name` belongs to: whole components at the beginning, or a
  // pattern with * ? [ over the whole name or its beginning.
  std::optional<size_t> Match(const std::string& name) const {
    for (size_t i = 0; i < patterns_.size(); ++i) {
      const std::string& p = patterns_[i];
      if (p.find_first_of("*?[") == std::string::npos) {
        if (name.starts_with(p) && (name.size() == p.size() || name[p.size()] == '.')) return i;
      } else if (fnmatch(p.c_str(), name.c_str(), 0) == 0 ||
                 fnmatch((p + ".*").c_str(), name.c_str(), 0) == 0) {
        return i;
      }
    }
    return std::nullopt;
  }

 private:
  const std::vector<std::string>& patterns_;
};

// Takes the rows and columns that are asked for out of one report.
class RowPicker final : public report::CsvRows {
 public:
  RowPicker(const config::MergeConfig& config, RankRows& out)
      : config_(config), patterns_(config.apis), out_(out) {
    out_.seen.resize(config.apis.size());
  }

  Status Header(std::span<const std::string> columns) override {
    const auto find = [&](std::string_view name) {
      const auto it = std::find(columns.begin(), columns.end(), name);
      return it == columns.end() ? -1 : static_cast<int>(it - columns.begin());
    };
    name_ = find(kNameColumn);
    const ModeInfo* mode = nullptr;
    for (const ModeInfo& m : Modes()) {
      if (find(m.mark) >= 0) mode = &m;
    }
    if (name_ < 0 || mode == nullptr) {
      return Error(ErrorCode::kMalformed, "not a report of compare: its columns are other ones");
    }
    if (!out_.mode.empty() && out_.mode != mode->name) {
      return Error(ErrorCode::kMalformed, "its parts are of different modes");
    }
    out_.mode = mode->name;
    npu_max_ = find("NPU max");
    bench_max_ = find("Bench max");
    columns_.clear();
    for (const std::string& metric : config_.metrics) {
      const bool known = Contains(mode->metrics, metric) || Contains(kVerdicts, metric) ||
                         (mode->name != "tensor" && IsSketch(metric));
      columns_.push_back(known ? find(metric) : -1);
    }
    out_.has.assign(columns_.size(), false);
    for (size_t i = 0; i < columns_.size(); ++i) out_.has[i] = columns_[i] >= 0;
    return {};
  }

  Status Row(std::span<const std::string> cells, uint32_t) override {
    const std::string& name = cells[static_cast<size_t>(name_)];
    const std::optional<size_t> api = patterns_.Match(name);
    if (!api) return {};
    out_.seen[*api] = true;
    PickedRow row;
    row.name = name;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (columns_[i] < 0) {
        row.cells.emplace_back();
        continue;
      }
      row.cells.push_back(
          Shown(cells, cells[static_cast<size_t>(columns_[i])], config_.metrics[i]));
    }
    out_.rows.push_back(std::move(row));
    return {};
  }

 private:
  // Cells without a figure show what both sides recorded: process groups become visible so.
  std::string Shown(std::span<const std::string> cells, const std::string& cell,
                    std::string_view metric) const {
    constexpr std::array<std::string_view, 3> kNoFigure = {"N/A", "unsupported", "Nan"};
    if (npu_max_ < 0 || bench_max_ < 0 || metric == kConsistentColumn || metric == kResultColumn ||
        metric == kAccuracyColumn || IsSketch(metric) ||
        std::find(kNoFigure.begin(), kNoFigure.end(), cell) == kNoFigure.end()) {
      return cell;
    }
    return fmt::format("NPU:{}  Bench:{}", cells[static_cast<size_t>(npu_max_)],
                       cells[static_cast<size_t>(bench_max_)]);
  }

  const config::MergeConfig& config_;
  NamePatterns patterns_;
  RankRows& out_;
  int name_ = -1, npu_max_ = -1, bench_max_ = -1;
  std::vector<int> columns_;
};

Status PickXlsx(const std::string& path, RowPicker& picker) {
  MSPROBE_ASSIGN(const std::vector<report::TextTable> sheets, report::ReadXlsx(path));
  if (sheets.empty()) return Error(ErrorCode::kMalformed, "the workbook is empty").At(path);
  const bool parts = sheets.front().sheet.starts_with("part_");
  for (const report::TextTable& sheet : sheets) {
    if (&sheet != &sheets.front() && !(parts && sheet.sheet.starts_with("part_"))) continue;
    Status status = picker.Header(sheet.columns);
    if (!status.ok()) return std::move(status).error().At(path);
    for (const auto& row : sheet.rows) MSPROBE_TRY(picker.Row(row, 0));
  }
  return {};
}

}  // namespace

Result<std::vector<RankFiles>> FindReports(const std::string& dir, LogSink& log) {
  MSPROBE_ASSIGN(const std::vector<std::string> names, ListNames(dir));
  std::map<std::pair<int64_t, int64_t>,
           std::map<std::pair<std::string, bool>, std::vector<ReportFile>>>
      found;  // (step, rank) -> (stamp, is workbook) -> parts
  for (const std::string& name : names) {
    std::optional<ReportFile> file = ParseName(name);
    if (!file) {
      if (name.starts_with("compare_result_rank_")) {
        log.Warning(fmt::format("{}: carries no rank number and is left out", name));
      }
      continue;
    }
    file->path = JoinPath(dir, name);
    found[{file->step, file->rank}][{file->stamp, !file->csv}].push_back(std::move(*file));
  }
  const bool steps = !found.empty() && found.rbegin()->first.first >= 0;
  std::vector<RankFiles> out;
  for (auto& [place, reports] : found) {
    RankFiles rank;
    rank.label = fmt::format("rank{}", place.second);
    if (steps && place.first >= 0) rank.label = fmt::format("step{} {}", place.first, rank.label);
    std::vector<ReportFile>& newest = reports.rbegin()->second;
    std::sort(newest.begin(), newest.end(),
              [](const ReportFile& a, const ReportFile& b) { return a.part < b.part; });
    rank.csv = newest.front().csv;
    for (const ReportFile& f : newest) rank.paths.push_back(f.path);
    if (reports.size() > 1) {
      log.Warning(fmt::format("{}: {} reports, the newest is taken: {}", rank.label, reports.size(),
                              BaseName(rank.paths.front())));
    }
    out.push_back(std::move(rank));
  }
  return out;
}

Result<RankRows> PickRank(const RankFiles& files, const config::MergeConfig& config) {
  RankRows out;
  RowPicker picker(config, out);
  for (const std::string& path : files.paths) {
    if (files.csv) {
      MSPROBE_TRY(report::ReadCsvRows(path, picker));
    } else {
      MSPROBE_TRY(PickXlsx(path, picker));
    }
  }
  // Names that stand several times in a report keep their order: name, name (2), ….
  std::unordered_map<std::string, int> times;
  for (PickedRow& row : out.rows) {
    const int n = ++times[row.name];
    if (n > 1) row.name += fmt::format(" ({})", n);
  }
  return out;
}

std::vector<std::string> AllMetrics() {
  std::vector<std::string> out;
  for (const ModeInfo& mode : Modes()) {
    for (const std::string_view m : mode.metrics) {
      if (!Contains(out, m)) out.emplace_back(m);
    }
  }
  out.insert(out.end(), kSketches.begin(), kSketches.end());
  return out;
}

}  // namespace msprobe::app
