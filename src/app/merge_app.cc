#include "app/merge_app.h"

#include <dirent.h>
#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "base/file.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "base/time.h"
#include "json/json.h"
#include "report/table.h"

namespace msprobe::app {
namespace {

constexpr std::string_view kName = "NPU Name";
constexpr std::string_view kConsistent = "Requires_grad Consistent";
constexpr std::string_view kResult = "Result";
constexpr std::string_view kAccuracy = "Accuracy Reached or Not";

// ---- which files
// ---------------------------------------------------------------------------------

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

struct RankFiles {
  std::string label;
  bool csv = false;
  std::vector<std::string> paths;  // parts in order
};

Result<std::vector<std::string>> ListNames(const std::string& dir) {
  DIR* handle = opendir(dir.c_str());
  if (handle == nullptr) return ErrnoError(errno, "open", dir);
  std::vector<std::string> out;
  while (const dirent* entry = readdir(handle)) out.emplace_back(entry->d_name);
  closedir(handle);
  std::sort(out.begin(), out.end());
  return out;
}

// One report per rank, the newest; a workbook before a csv of the same second.
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

// ---- what a report holds
// -------------------------------------------------------------------------

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
        "Five Thousandths Err Ratio", kConsistent}},
      {"statistics",
       "Max diff",
       {"Max diff", "Min diff", "Mean diff", "L2norm diff", "MaxRelativeErr", "MinRelativeErr",
        "MeanRelativeErr", "NormRelativeErr", kConsistent}},
      {"md5", "NPU MD5", {kResult, kConsistent}}};
  return modes;
}

// Columns that may be asked for beside the metrics of the mode.
constexpr std::array<std::string_view, 2> kVerdicts = {kResult, kAccuracy};

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

struct PickedRow {
  std::string name;
  std::vector<std::string> cells;  // of the metrics asked for; "" where the report has none
};

struct RankRows {
  std::string mode;
  std::vector<bool> has;  // metric asked for -> the report has it
  std::vector<PickedRow> rows;
  std::vector<bool> seen;  // api -> some row belongs to it
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
    name_ = find(kName);
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
      const bool known =
          std::find(mode->metrics.begin(), mode->metrics.end(), metric) != mode->metrics.end() ||
          std::find(kVerdicts.begin(), kVerdicts.end(), metric) != kVerdicts.end();
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
    if (npu_max_ < 0 || bench_max_ < 0 || metric == kConsistent || metric == kResult ||
        metric == kAccuracy ||
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

// The modes' own metrics when the file names none: those of the modes that are there.
std::vector<std::string> DefaultMetrics() {
  std::vector<std::string> out;
  for (const ModeInfo& mode : Modes()) {
    for (const std::string_view m : mode.metrics) {
      if (std::find(out.begin(), out.end(), m) == out.end()) out.emplace_back(m);
    }
  }
  // Verdicts are for md5 reports; other modes show figures.
  return out;
}

// ---- the merged table
// ----------------------------------------------------------------------------

// All names: the order of the first report; names of later ones behind the name they follow there.
std::vector<std::string> JoinNames(const std::vector<const RankRows*>& ranks, bool sort) {
  std::list<std::string> order;
  std::unordered_map<std::string, std::list<std::string>::iterator> where;
  for (const RankRows* rank : ranks) {
    auto after = order.begin();
    for (const PickedRow& row : rank->rows) {
      if (const auto it = where.find(row.name); it != where.end()) {
        after = std::next(it->second);
      } else {
        where[row.name] = order.insert(after, row.name);
      }
    }
  }
  std::vector<std::string> out(order.begin(), order.end());
  if (sort) std::sort(out.begin(), out.end());
  return out;
}

// A number, a percent text as its share; nullopt for other texts.
std::optional<double> Figure(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  const bool percent = text.ends_with('%');
  if (percent) text.remove_suffix(1);
  double value = 0;
  if (!ParsePyFloat(text, value)) return std::nullopt;
  return percent ? value / 100 : value;
}

// How bad a cell is; larger is worse. nullopt: says nothing.
std::optional<double> Badness(std::string_view cell, std::string_view metric) {
  if (cell.empty()) return std::nullopt;
  static constexpr std::array<std::pair<std::string_view, double>, 11> kWords = {{{"True", 0},
                                                                                  {"False", 1},
                                                                                  {"pass", 0},
                                                                                  {"Yes", 0},
                                                                                  {"None", 1},
                                                                                  {"Unmatched", 1},
                                                                                  {"unmatched", 1},
                                                                                  {"warning", 2},
                                                                                  {"Warning", 2},
                                                                                  {"error", 3},
                                                                                  {"No", 3}}};
  if (metric == kConsistent || metric == kResult || metric == kAccuracy) {
    if (cell == "Different") return 3;
    for (const auto& [word, value] : kWords) {
      if (word == cell) return value;
    }
    return std::nullopt;
  }
  const std::optional<double> value = Figure(cell);
  if (!value) return std::nullopt;
  if (std::isnan(*value)) return std::numeric_limits<double>::infinity();
  const bool larger_is_better = metric == "Cosine" || metric.ends_with("Err Ratio");
  return larger_is_better ? -*value : std::abs(*value);
}

struct Worst {
  std::optional<size_t> rank;
  double badness = 0;
};

// The worst rank of a row when the ranks differ; the first of several.
Worst WorstOf(const std::vector<const std::string*>& cells, std::string_view metric) {
  Worst out;
  std::optional<double> least;
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::optional<double> b = cells[i] == nullptr ? std::nullopt : Badness(*cells[i], metric);
    if (!b) continue;
    if (!out.rank || *b > out.badness) {
      out.rank = i;
      out.badness = *b;
    }
    if (!least || *b < *least) least = b;
  }
  if (least && !(out.badness > *least)) out.rank.reset();
  return out;
}

// Numbers as numbers; percent texts and words as texts.
report::Cell CellOf(const std::string* text) {
  if (text == nullptr || text->empty()) return {};
  double value = 0;
  if (*text == "True" || *text == "False") return report::Cell::Bool(*text == "True");
  const bool odd = text->find_first_not_of("+-.0123456789eE ") != std::string::npos;
  if (!odd && ParsePyFloat(*text, value)) return report::Cell::Double(value);
  return report::Cell::Text(*text);
}

using RowIndex = std::unordered_map<std::string_view, const PickedRow*>;

struct Merge {
  std::vector<std::string> labels;
  std::vector<const RankRows*> ranks;
  std::vector<RowIndex> index;
  std::vector<std::string> names;
};

Status WriteSheet(const Merge& merge, size_t metric, const std::string& title,
                  report::BookWriter& book, MergeRun& run) {
  std::vector<std::string> columns = {std::string(kName)};
  columns.insert(columns.end(), merge.labels.begin(), merge.labels.end());
  columns.emplace_back("worst rank");
  columns.emplace_back("worst value");
  MSPROBE_TRY(book.Sheet(title, columns));
  std::vector<report::Cell> cells;
  std::vector<const std::string*> values(merge.ranks.size());
  Worst top;
  std::string top_line;
  for (const std::string& name : merge.names) {
    for (size_t r = 0; r < merge.ranks.size(); ++r) {
      const auto it = merge.index[r].find(name);
      values[r] = it == merge.index[r].end() || !merge.ranks[r]->has[metric]
                      ? nullptr
                      : &it->second->cells[metric];
    }
    cells.assign(1, report::Cell::Text(name));
    for (const std::string* v : values) cells.push_back(CellOf(v));
    const Worst worst = WorstOf(values, title);
    cells.push_back(worst.rank ? report::Cell::Text(merge.labels[*worst.rank]) : report::Cell());
    cells.push_back(worst.rank ? CellOf(values[*worst.rank]) : report::Cell());
    MSPROBE_TRY(book.Row(cells, report::Mark::kNone));
    if (worst.rank && (!top.rank || worst.badness > top.badness)) {
      top = worst;
      top_line = fmt::format("{}: {} on {}: {}", title, name, merge.labels[*worst.rank],
                             *values[*worst.rank]);
    }
  }
  if (top.rank) run.worst.push_back(std::move(top_line));
  return {};
}

Status WriteBook(const MergeOptions& options, const std::vector<std::string>& metrics,
                 const Merge& merge, MergeRun& run) {
  const auto book = report::NewXlsxBookWriter(run.path);
  for (size_t m = 0; m < metrics.size(); ++m) {
    const bool any = std::any_of(merge.ranks.begin(), merge.ranks.end(),
                                 [&](const RankRows* r) { return r->has[m]; });
    if (!any) continue;
    // Verdicts come with md5 reports, and with others when asked for.
    if (options.config.metrics.empty() && metrics[m] == kResult &&
        std::none_of(merge.ranks.begin(), merge.ranks.end(),
                     [](const RankRows* r) { return r->mode == "md5"; })) {
      continue;
    }
    MSPROBE_TRY(WriteSheet(merge, m, metrics[m], *book, run));
    run.sheets.push_back(metrics[m]);
  }
  Result<std::vector<std::string>> done = book->Finish();
  if (!done.ok()) return std::move(done).error();
  return {};
}

std::string SummaryText(const MergeOptions& options, const MergeRun& run, int64_t started) {
  std::string text;
  json::Writer w(text, 2);
  const auto strings = [&](std::string_view key, const std::vector<std::string>& list) {
    w.Key(key).StartArray();
    for (const std::string& s : list) w.String(s);
    w.EndArray();
  };
  w.StartObject();
  w.Key("format_version").Int(1);
  w.Key("tool_version").String(MSPROBE_VERSION);
  w.Key("command").String("merge_result");
  w.Key("options").StartObject();
  for (const auto& [key, value] : options.echo) w.Key(key).String(value);
  w.EndObject();
  w.Key("inputs").StartArray().String(options.input_dir).EndArray();
  w.Key("started").String(IsoUtc(started));
  w.Key("seconds").Double(std::round(run.seconds * 1000) / 1000);
  w.Key("counts").StartObject();
  w.Key("ranks").Uint(run.ranks.size());
  w.Key("rows").Uint(run.rows);
  w.Key("sheets").Uint(run.sheets.size());
  w.EndObject();
  w.Key("path").String(run.path);
  w.Key("ranks").StartArray();
  for (const MergedRank& r : run.ranks) {
    w.StartObject();
    w.Key("rank").String(r.label);
    w.Key("mode").String(r.mode);
    w.Key("rows").Uint(r.rows);
    strings("files", r.files);
    if (!r.problem.empty()) w.Key("problem").String(r.problem);
    w.EndObject();
  }
  w.EndArray();
  strings("worst", run.worst);
  strings("messages", run.messages);
  w.EndObject();
  return text + "\n";
}

Status WriteSummary(const MergeOptions& options, MergeRun& run, int64_t started) {
  MSPROBE_ASSIGN(AtomicFile file, AtomicFile::Create(run.summary_path));
  MSPROBE_TRY(file.Write(SummaryText(options, run, started)));
  return file.Commit();
}

void Warn(MergeRun& run, LogSink& log, std::string message) {
  constexpr size_t kMost = 200;
  log.Warning(message);
  if (run.messages.size() < kMost) run.messages.push_back(std::move(message));
}

// What was asked for and is not there, rank by rank.
void WarnMissing(const MergeOptions& options, const MergedRank& rank, const RankRows& rows,
                 MergeRun& run, LogSink& log) {
  for (size_t i = 0; i < rows.seen.size(); ++i) {
    if (!rows.seen[i]) {
      Warn(run, log, fmt::format("{}: no row of {}", rank.label, options.config.apis[i]));
    }
  }
  for (size_t i = 0; i < options.config.metrics.size(); ++i) {
    if (!rows.has[i]) {
      Warn(run, log,
           fmt::format("{}: its report ({} mode) has no {}", rank.label, rows.mode,
                       options.config.metrics[i]));
    }
  }
}

Error TooFew(const MergeOptions& options, size_t n) {
  return Error(ErrorCode::kNothingToDo,
               n == 0 ? "no report of a rank inside" : "the report of one rank only")
      .At(options.input_dir)
      .Hint("expected compare_result_rank<n>_<time>.xlsx or .csv of at least two ranks");
}

}  // namespace

Result<MergeRun> MergeReports(const MergeOptions& options, LogSink& log,
                              const CancelToken* cancel) {
  MergeRun run;
  const int64_t started = UnixSeconds();
  const double begin = MonotonicSeconds();
  MSPROBE_ASSIGN(const std::vector<RankFiles> files, FindReports(options.input_dir, log));
  if (files.size() < 2) return TooFew(options, files.size());
  config::MergeConfig config = options.config;
  if (config.metrics.empty()) config.metrics = DefaultMetrics();

  std::vector<std::optional<Result<RankRows>>> read(files.size());
  ParallelFor(
      files.size(), options.workers, [&](size_t i) { read[i] = PickRank(files[i], config); },
      cancel);
  if (cancel != nullptr && cancel->cancelled()) return Error(ErrorCode::kCancelled, "interrupted");
  Merge merge;
  for (size_t i = 0; i < files.size(); ++i) {
    MergedRank rank;
    rank.label = files[i].label;
    rank.files = files[i].paths;
    if (read[i]->ok()) {
      const RankRows& rows = **read[i];
      rank.mode = rows.mode;
      rank.rows = rows.rows.size();
      WarnMissing(options, rank, rows, run, log);
      merge.labels.push_back(rank.label);
      merge.ranks.push_back(&rows);
    } else {
      rank.problem = read[i]->error().ToString();
      run.partial = true;
      Warn(run, log, fmt::format("{} is left out: {}", rank.label, rank.problem));
    }
    run.ranks.push_back(std::move(rank));
  }
  if (merge.ranks.size() < 2) return TooFew(options, merge.ranks.size());
  merge.names = JoinNames(merge.ranks, options.sort_names);
  if (merge.names.empty()) {
    return Error(ErrorCode::kNothingToDo, "no report has a row of any name in `api`")
        .At(options.input_dir);
  }
  for (const RankRows* rank : merge.ranks) {
    RowIndex index;
    for (const PickedRow& row : rank->rows) index.emplace(row.name, &row);
    merge.index.push_back(std::move(index));
  }
  run.rows = merge.names.size();
  MSPROBE_TRY(CreateDirectories(options.output_dir));
  const std::string stamp = LocalTimestamp(FreeTimestamp(
      options.output_dir, {"multi_ranks_compare_merge_{ts}.xlsx", "merge_result_summary_{ts}.json"},
      started));
  run.path = JoinPath(options.output_dir, fmt::format("multi_ranks_compare_merge_{}.xlsx", stamp));
  run.summary_path =
      JoinPath(options.output_dir, fmt::format("merge_result_summary_{}.json", stamp));
  const bool any = std::any_of(merge.ranks.begin(), merge.ranks.end(), [](const RankRows* r) {
    return std::find(r->has.begin(), r->has.end(), true) != r->has.end();
  });
  if (!any) {
    return Error(ErrorCode::kConfig, "no report has any of the columns in `compare_index`")
        .At(options.input_dir);
  }
  MSPROBE_TRY(WriteBook(options, config.metrics, merge, run));
  run.seconds = MonotonicSeconds() - begin;
  MSPROBE_TRY(WriteSummary(options, run, started));
  return run;
}

std::string MergeAnswer(const MergeRun& run) {
  std::string out =
      fmt::format("{} rows of {} ranks side by side, a sheet for each of {} columns.\n", run.rows,
                  run.ranks.size(), run.sheets.size());
  if (!run.worst.empty()) out += "Largest difference among ranks:\n";
  for (const std::string& line : run.worst) out += "  " + VisibleText(line) + "\n";
  out += fmt::format("Report: {}\nSummary: {}\n", VisibleText(run.path),
                     VisibleText(run.summary_path));
  return out;
}

std::string MergeClosingLine(const MergeRun& run) {
  size_t out = 0;
  for (const MergedRank& r : run.ranks) out += !r.problem.empty();
  return fmt::format("ranks {}, left out {}, rows {}, sheets {}, path {}", run.ranks.size(), out,
                     run.rows, run.sheets.size(), VisibleText(run.path));
}

}  // namespace msprobe::app
