#include "app/merge_app.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <list>
#include <optional>
#include <unordered_map>

#include "app/compare_fields.h"
#include "app/json_lines.h"
#include "app/json_rows.h"
#include "app/merge_reports.h"
#include "app/output_folder.h"
#include "base/file.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "base/time.h"
#include "json/json.h"
#include "report/table.h"

namespace msprobe::app {
namespace {

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

// A number, a percent text as its share, the bound of "< 1.5e-7"; nullopt for other texts.
std::optional<double> Figure(std::string_view text) {
  if (text.starts_with("< ")) text.remove_prefix(1);
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
  if (metric == kConsistentColumn || metric == kResultColumn || metric == kAccuracyColumn ||
      metric == kBitEqualColumn) {
    if (cell == "Different") return 3;
    for (const auto& [word, value] : kWords) {
      if (word == cell) return value;
    }
    return std::nullopt;
  }
  const std::optional<double> value = Figure(cell);
  if (!value) return std::nullopt;
  if (std::isnan(*value)) return std::numeric_limits<double>::infinity();
  const bool larger_is_better =
      metric == "Cosine" || metric == "Sketch Cosine" || metric.ends_with("Err Ratio");
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

// One row of a sheet as a line of JSON.
Status WriteLine(const std::string& sheet, uint64_t row, const std::vector<std::string>& columns,
                 const std::vector<report::Cell>& cells, JsonLines& out) {
  if (!out.wanted()) return {};
  std::string text;
  json::Writer w(text);
  w.StartObject();
  w.Key("sheet").String(sheet);
  w.Key("row").Uint(row);
  w.Key("entry").String(cells[0].text);
  for (size_t i = 0; i < cells.size(); ++i) {
    w.Key(columns[i]);
    WriteJsonCell(w, cells[i], true);
  }
  w.EndObject();
  return out.Write(text + "\n");
}

struct Outputs {
  report::BookWriter& book;
  JsonLines& json;
};

struct Merge {
  std::vector<std::string> labels;
  std::vector<const RankRows*> ranks;
  std::vector<RowIndex> index;
  std::vector<std::string> names;
};

Status WriteSheet(const Merge& merge, size_t metric, const std::string& title, const Outputs& out,
                  MergeRun& run) {
  std::vector<std::string> columns = {std::string(kNameColumn)};
  columns.insert(columns.end(), merge.labels.begin(), merge.labels.end());
  columns.emplace_back("worst rank");
  columns.emplace_back("worst value");
  MSPROBE_TRY(out.book.Sheet(title, columns));
  std::vector<report::Cell> cells;
  std::vector<const std::string*> values(merge.ranks.size());
  Worst top;
  std::string top_line;
  uint64_t row = 0;
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
    MSPROBE_TRY(out.book.Row(cells, report::Mark::kNone));
    MSPROBE_TRY(WriteLine(title, row++, columns, cells, out.json));
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
                 const Merge& merge, JsonLines& json, MergeRun& run) {
  const auto book = report::NewXlsxBookWriter(run.path);
  for (size_t m = 0; m < metrics.size(); ++m) {
    const bool any = std::any_of(merge.ranks.begin(), merge.ranks.end(),
                                 [&](const RankRows* r) { return r->has[m]; });
    if (!any) continue;
    // Verdicts come with md5 reports, and with others when asked for.
    if (options.config.metrics.empty() && metrics[m] == kResultColumn &&
        std::none_of(merge.ranks.begin(), merge.ranks.end(),
                     [](const RankRows* r) { return r->mode == "md5"; })) {
      continue;
    }
    MSPROBE_TRY(WriteSheet(merge, m, metrics[m], {*book, json}, run));
    run.sheets.push_back(metrics[m]);
  }
  Result<std::vector<std::string>> done = book->Finish();
  if (!done.ok()) return std::move(done).error();
  return json.Commit();
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

using ReadRanks = std::vector<std::optional<Result<RankRows>>>;

// The ranks that could be read; the others are named. The rows stay in `read`.
Merge JoinRanks(const MergeOptions& options, const std::vector<RankFiles>& files,
                const ReadRanks& read, MergeRun& run, LogSink& log) {
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
  for (const RankRows* rank : merge.ranks) {
    RowIndex index;
    for (const PickedRow& row : rank->rows) index.emplace(row.name, &row);
    merge.index.push_back(std::move(index));
  }
  merge.names = JoinNames(merge.ranks, options.sort_names);
  return merge;
}

struct PickedRank {
  std::optional<Error> error;
  RankRows rows;
};
template <class Archive>
void Fields(Archive& a, PickedRank& r) {
  a(r.error, r.rows);
}

// A table with as many columns as were asked for: what reads it counts on that.
bool Fits(const RankRows& rank, const config::MergeConfig& config) {
  const size_t columns = config.metrics.size();
  return rank.has.size() == columns && rank.seen.size() == config.apis.size() &&
         std::all_of(rank.rows.begin(), rank.rows.end(),
                     [&](const PickedRow& row) { return row.cells.size() == columns; });
}

Status PickWithEngine(Engine& engine, std::vector<RankFiles> files,
                      const config::MergeConfig& config, ReadRanks& read,
                      const CancelToken* cancel) {
  std::vector<std::string> payloads;
  for (RankFiles& f : files) payloads.push_back(Packed(f));
  MSPROBE_ASSIGN(const auto results, RunSmall(engine, payloads, cancel));
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].ok()) {
      read[i] = results[i].error();
      continue;
    }
    std::optional<PickedRank> picked = Unpacked<PickedRank>(*results[i]);
    if (!picked || (!picked->error && !Fits(picked->rows, config))) {
      return Error(ErrorCode::kMalformed, "the worker is of another version");
    }
    read[i] = picked->error ? Result<RankRows>(std::move(*picked->error))
                            : Result<RankRows>(std::move(picked->rows));
  }
  return {};
}

config::MergeConfig ConfigOf(const MergeOptions& options) {
  config::MergeConfig config = options.config;
  if (config.metrics.empty()) config.metrics = AllMetrics();
  return config;
}

Error TooFew(const MergeOptions& options, ErrorCode code, size_t n) {
  return Error(code, n == 0 ? "no report of a rank inside" : "the report of one rank only")
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
  if (files.size() < 2) return TooFew(options, ErrorCode::kNotFound, files.size());
  MSPROBE_ASSIGN(const OutputFolder folder, OutputFolder::Make(options.output_dir));
  MSPROBE_ASSIGN(JsonLines json, JsonLines::Create(options.json_path));
  const config::MergeConfig config = ConfigOf(options);
  ReadRanks read(files.size());
  if (options.engine != nullptr) {
    MSPROBE_TRY(PickWithEngine(*options.engine, files, config, read, cancel));
  }
  ParallelFor(
      options.engine != nullptr ? 0 : files.size(), options.workers,
      [&](size_t i) { read[i] = PickRank(files[i], config); }, cancel);
  if (cancel != nullptr && cancel->cancelled()) return Error(ErrorCode::kCancelled, "interrupted");
  Merge merge = JoinRanks(options, files, read, run, log);
  if (merge.ranks.size() < 2) {
    return TooFew(options, ErrorCode::kNothingToDo, merge.ranks.size());
  }
  if (merge.names.empty()) {
    return Error(ErrorCode::kNothingToDo, "no report has a row of any name in `api`")
        .At(options.input_dir);
  }
  const bool any = std::any_of(merge.ranks.begin(), merge.ranks.end(), [](const RankRows* r) {
    return std::find(r->has.begin(), r->has.end(), true) != r->has.end();
  });
  if (!any) {
    return Error(ErrorCode::kConfig, "no report has any of the columns in `compare_index`")
        .At(options.input_dir);
  }
  run.rows = merge.names.size();
  const std::string stamp = LocalTimestamp(FreeTimestamp(
      options.output_dir, {"multi_ranks_compare_merge_{ts}.xlsx", "merge_result_summary_{ts}.json"},
      started));
  run.path = JoinPath(options.output_dir, fmt::format("multi_ranks_compare_merge_{}.xlsx", stamp));
  run.summary_path =
      JoinPath(options.output_dir, fmt::format("merge_result_summary_{}.json", stamp));
  MSPROBE_TRY(WriteBook(options, config.metrics, merge, json, run));
  run.seconds = MonotonicSeconds() - begin;
  MSPROBE_TRY(WriteSummary(options, run, started));
  return run;
}

Status RunMergeItem(const MergeOptions& options, std::string_view payload,
                    const ItemContext& context) {
  const auto files = Unpacked<RankFiles>(payload);
  if (!files) return Error(ErrorCode::kMalformed, "no work item of this version");
  Result<RankRows> rows = PickRank(*files, ConfigOf(options));
  PickedRank out;
  if (rows.ok()) {
    out.rows = std::move(rows).value();
  } else {
    out.error = rows.error();
  }
  return context.emit(Packed(out));
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
