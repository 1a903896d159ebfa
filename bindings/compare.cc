// The comparison of two dumps for Python: options in, a result object out.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <future>
#include <limits>

#include "app/analysis_app.h"
#include "app/compare_app.h"
#include "app/compare_summary.h"
#include "app/compare_table.h"
#include "app/compare_text.h"
#include "app/culprit_app.h"
#include "bindings/culprit_result.h"
#include "bindings/errors.h"
#include "bindings/module.h"
#include "bindings/user_metrics.h"

namespace msprobe::bindings {
namespace {

namespace nb = nanobind;

// Messages go to logging.getLogger("msprobe"), from any thread.
class PythonLog final : public LogSink {
 public:
  PythonLog() : log_(nb::module_::import_("logging").attr("getLogger")("msprobe").attr("log")) {}
  void Log(LogLevel level, std::string_view message) override {
    const nb::gil_scoped_acquire acquire;
    constexpr int kStep = 10;  // logging.DEBUG, INFO, WARNING, ERROR
    try {
      log_(kStep * (static_cast<int>(level) + 1), "%s", nb::str(message.data(), message.size()));
    } catch (nb::python_error& e) {
      e.discard_as_unraisable("msprobe log");
    }
  }

 private:
  nb::object log_;
};

// Runs `use_case` beside this thread, so that Python sees Ctrl-C at once; the first interrupt
// cancels. Replays run in this interpreter: its threads take turns.
template <class Run>
Result<Run> RunInterruptible(Result<Run> (*use_case)(const app::CompareOptions&, LogSink&,
                                                     ProgressSink&, const CancelToken*),
                             app::CompareOptions options, LogSink& log) {
  CancelToken cancel;
  options.replay = [&cancel](const std::string& jobs) { return ReplayCalls(jobs, cancel); };
  std::optional<Result<Run>> out;
  bool interrupted = false;
  {
    const nb::gil_scoped_release release;
    auto work = std::async(std::launch::async,
                           [&] { out.emplace(use_case(options, log, NullProgress(), &cancel)); });
    while (work.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
      if (interrupted) continue;
      const nb::gil_scoped_acquire acquire;
      interrupted = PyErr_CheckSignals() != 0;
      if (interrupted) cancel.Cancel();
    }
    work.get();
  }
  if (interrupted) throw nb::python_error();
  return std::move(*out);
}

nb::dict CountsDict(const compare::Counts& c) {
  nb::dict out;
  out["pass"] = c.pass;
  out["warning"] = c.warning;
  out["error"] = c.error;
  out["unmatched"] = c.unmatched;
  out["total"] = c.total;
  out["Yes"] = c.yes;
  out["No"] = c.no;
  out["None"] = c.none;
  return out;
}

nb::object CellObject(const report::Cell& cell) {
  using Kind = report::Cell::Kind;
  switch (cell.kind) {
    case Kind::kEmpty:
      return nb::none();
    case Kind::kText:
      return nb::str(cell.text.data(), cell.text.size());
    case Kind::kDouble:
      return nb::float_(cell.d);
    case Kind::kInt:
      return nb::int_(cell.i);
    case Kind::kUint:
      return nb::int_(cell.u);
    case Kind::kBool:
      return nb::bool_(cell.b);
  }
  return nb::none();
}

struct PyRun {
  std::shared_ptr<const app::CompareRun> shared;
  app::CompareOptions options;
  const app::CompareRun& run() const { return *shared; }
};

// Keeps the run alive that it is a part of.
struct PyRank {
  std::shared_ptr<const app::CompareRun> run;
  const app::RankOutcome& outcome;
  compare::Face face;
};

std::optional<PyCulprit> CulpritOf(const std::shared_ptr<const culprit::Report>& report) {
  if (!report || report->findings.empty()) return std::nullopt;
  return PyCulprit{report, 0};
}

std::optional<PySearch> SearchOf(const std::shared_ptr<const culprit::Report>& report) {
  if (!report) return std::nullopt;
  return PySearch{report};
}

// What stands for the whole run.
std::shared_ptr<const culprit::Report> ReportOf(const PyRun& r) {
  return {r.shared, app::CulpritOf(r.run())};
}

constexpr const char* kCulpritDoc =
    "The operator at fault; None: nothing was found, or culprit_search says why.";
constexpr const char* kSearchDoc =
    "All that the search for the operator at fault says; None: it was not made.";

nb::object FirstBadDict(const app::RankOutcome& r) {
  if (!r.first_bad) return nb::none();
  nb::dict out;
  out["step"] = r.job.step;
  out["rank"] = r.job.rank;
  out["entry"] = r.first_bad->entry;
  out["row"] = r.first_bad->row;
  out["row_index"] = r.first_bad->row_index;
  out["reason"] = r.first_bad->reason;
  if (r.culprit && !r.culprit->findings.empty()) {
    const std::string_view kind = culprit::KindName(r.culprit->findings.front().kind);
    out["kind"] = nb::str(kind.data(), kind.size());
  }
  return out;
}

const compare::Comparison& KeptComparison(const PyRank& r) {
  if (r.outcome.comparison == nullptr) {
    RaiseError(
        Error(ErrorCode::kInvalidArgument, "rows were not kept").Hint("call with keep_rows=True"),
        "CompareError");
  }
  return *r.outcome.comparison;
}

nb::list Rows(const PyRank& r) {
  const compare::Comparison& comparison = KeptComparison(r);
  app::CompareTable table(comparison, r.face, r.outcome.user.get());
  nb::list out;
  for (size_t i = 0; i < comparison.rows.size(); ++i) {
    nb::list row;
    for (const report::Cell& cell : table.Cells(i)) row.append(CellObject(cell));
    out.append(row);
  }
  return out;
}

// Figures: numbers, and words where there is none. All other columns are texts.
bool IsFigure(std::string_view column) {
  constexpr std::array<std::string_view, 27> kFigures = {"Cosine",
                                                         "EucDist",
                                                         "MaxAbsErr",
                                                         "MaxRelativeErr",
                                                         "MinRelativeErr",
                                                         "MeanRelativeErr",
                                                         "NormRelativeErr",
                                                         "One Thousandth Err Ratio",
                                                         "Five Thousandths Err Ratio",
                                                         "Max diff",
                                                         "Min diff",
                                                         "Mean diff",
                                                         "L2norm diff",
                                                         "NPU max",
                                                         "NPU min",
                                                         "NPU mean",
                                                         "NPU l2norm",
                                                         "Bench max",
                                                         "Bench min",
                                                         "Bench mean",
                                                         "Bench l2norm",
                                                         "Sketch EucDist",
                                                         "Sketch EucDist Bar",
                                                         "Sketch RelativeErr",
                                                         "Sketch RelativeErr Bar",
                                                         "Sketch Cosine",
                                                         "Sketch Cosine Bar"};
  return std::find(kFigures.begin(), kFigures.end(), column) != kFigures.end();
}

// NaN for words; percents as they stand, without the sign.
double FigureOf(const report::Cell& cell) {
  using Kind = report::Cell::Kind;
  switch (cell.kind) {
    case Kind::kDouble:
      return cell.d;
    case Kind::kInt:
      return static_cast<double>(cell.i);
    case Kind::kUint:
      return static_cast<double>(cell.u);
    case Kind::kText: {
      std::string_view text = cell.text;
      if (text.ends_with('%')) text.remove_suffix(1);
      double value = 0;
      const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
      return failed == std::errc() && end == text.data() + text.size()
                 ? value
                 : std::numeric_limits<double>::quiet_NaN();
    }
    default:
      return std::numeric_limits<double>::quiet_NaN();
  }
}

nb::object ArrayOf(std::vector<double> values) {
  auto* const kept = new std::vector<double>(std::move(values));
  const nb::capsule owner(kept,
                          [](void* p) noexcept { delete static_cast<std::vector<double>*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, double, nb::ndim<1>>(kept->data(), {kept->size()}, owner));
}

nb::dict Arrays(const PyRank& r) {
  const compare::Comparison& comparison = KeptComparison(r);
  app::CompareTable table(comparison, r.face, r.outcome.user.get());
  const std::vector<std::string>& columns = table.columns();
  const auto is_figure = [&](const std::string& column) {
    const app::UserColumns* user = r.outcome.user.get();
    return IsFigure(column) || (user != nullptr && std::find(user->names.begin(), user->names.end(),
                                                             column) != user->names.end());
  };
  std::vector<std::vector<double>> figures(columns.size());
  std::vector<nb::list> texts(columns.size());
  for (size_t i = 0; i < comparison.rows.size(); ++i) {
    const auto cells = table.Cells(i);
    for (size_t c = 0; c < columns.size(); ++c) {
      if (is_figure(columns[c])) {
        figures[c].push_back(FigureOf(cells[c]));
      } else {
        texts[c].append(CellObject(cells[c]));
      }
    }
  }
  const nb::object array = nb::module_::import_("numpy").attr("array");
  nb::dict out;
  for (size_t c = 0; c < columns.size(); ++c) {
    out[columns[c].c_str()] = is_figure(columns[c])
                                  ? ArrayOf(std::move(figures[c]))
                                  : array(texts[c], nb::arg("dtype") = nb::str("object"));
  }
  return out;
}

void BindRank(nb::module_& m) {
  nb::class_<PyRank>(m, "RankResult", "What became of one pair of ranks.")
      .def_prop_ro(
          "step", [](const PyRank& r) { return r.outcome.job.step; },
          "Name of the step folder; empty outside a dump root.")
      .def_prop_ro(
          "rank", [](const PyRank& r) { return r.outcome.job.rank; },
          "Name of the target's rank folder; empty for two files.")
      .def_prop_ro("target", [](const PyRank& r) { return r.outcome.job.target_json; })
      .def_prop_ro("golden", [](const PyRank& r) { return r.outcome.job.golden_json; })
      .def_prop_ro(
          "mode", [](const PyRank& r) { return std::string(app::ModeName(r.outcome.mode)); },
          "tensor, statistics or md5.")
      .def_prop_ro(
          "error",
          [](const PyRank& r) -> std::optional<std::string> {
            if (!r.outcome.error) return std::nullopt;
            return r.outcome.error->ToString();
          },
          "Why this pair was not compared, or None.")
      .def_prop_ro("counts", [](const PyRank& r) { return CountsDict(r.outcome.counts); })
      .def_prop_ro(
          "first_bad", [](const PyRank& r) { return FirstBadDict(r.outcome); },
          nb::sig("def first_bad(self, /) -> dict | None"))
      .def_prop_ro(
          "culprit", [](const PyRank& r) { return CulpritOf(r.outcome.culprit); }, kCulpritDoc)
      .def_prop_ro(
          "culprit_search", [](const PyRank& r) { return SearchOf(r.outcome.culprit); }, kSearchDoc)
      .def_prop_ro(
          "reports", [](const PyRank& r) { return r.outcome.reports; },
          "Paths of the csv or xlsx files.")
      .def_prop_ro(
          "advice", [](const PyRank& r) { return r.outcome.advice_path; },
          "Path of the advisor file; empty without one.")
      .def_prop_ro("notes", [](const PyRank& r) { return r.outcome.notes; })
      .def_prop_ro(
          "columns",
          [](const PyRank& r) {
            const compare::Comparison& c = KeptComparison(r);
            return app::CompareColumns(c.mode, r.face, c.shows_stack, r.outcome.user.get(),
                                       app::ShowsSketch(c));
          },
          "Column names of rows(). Needs keep_rows=True.")
      .def("rows", &Rows, "All cells of the report, row by row. Needs keep_rows=True.")
      .def(
          "arrays", &Arrays, nb::sig("def arrays(self) -> dict[str, NDArray[Any]]"),
          "The columns of the report by name: float64 for figures, with NaN where the report has a "
          "word,\nobjects (text, bool) for the others. Relative errors of statistics are percents. "
          "Needs\nkeep_rows=True and NumPy.");
}

void BindRun(nb::module_& m) {
  nb::class_<PyRun>(m, "CompareResult", "What a comparison found and where it wrote.")
      .def_prop_ro(
          "counts", [](const PyRun& r) { return CountsDict(r.run().counts); },
          "Rows per verdict, over all ranks.")
      .def_prop_ro(
          "first_bad",
          [](const PyRun& r) -> nb::object {
            if (!r.run().first_bad_rank) return nb::none();
            return FirstBadDict(r.run().ranks[*r.run().first_bad_rank]);
          },
          nb::sig("def first_bad(self, /) -> dict | None"),
          "The culprit, else the first entry with a wrong output, or None.")
      .def_prop_ro(
          "culprit", [](const PyRun& r) { return CulpritOf(ReportOf(r)); }, kCulpritDoc)
      .def_prop_ro(
          "culprit_search", [](const PyRun& r) { return SearchOf(ReportOf(r)); }, kSearchDoc)
      .def_prop_ro("ranks",
                   [](const PyRun& r) {
                     std::vector<PyRank> out;
                     for (const app::RankOutcome& o : r.run().ranks)
                       out.push_back({r.shared, o, r.options.face});
                     return out;
                   })
      .def_prop_ro("summary_path", [](const PyRun& r) { return r.run().summary_path; })
      .def_prop_ro(
          "partial", [](const PyRun& r) { return r.run().partial; },
          "Some rank failed or is missing.")
      .def_prop_ro("messages", [](const PyRun& r) { return r.run().messages; })
      .def_prop_ro("seconds", [](const PyRun& r) { return r.run().seconds; })
      .def("__str__", [](const PyRun& r) { return app::AnswerText(r.options, r.run()); });
}

config::NameMap ReadMapping(const std::string& path) {
  Result<config::NameMap> map = config::ReadNameMapYaml(path);
  if (!map.ok()) RaiseError(map.error(), "ConfigError");
  return std::move(map).value();
}

PyRun CompareDumps(const app::CompareOptions& options) {
  PythonLog log;
  Result<app::CompareRun> run = RunInterruptible(&app::Compare, options, log);
  if (!run.ok()) RaiseError(run.error(), "CompareError");
  return {std::make_shared<const app::CompareRun>(std::move(run).value()), options};
}

std::string RulesOf(const app::CompareOptions& options) {
  return options.rule_file ? "file" : std::string(app::RuleSetName(options.rules));
}

void SetRules(app::CompareOptions& options, const std::string& value) {
  options.rule_file = nullptr;
  for (const compare::RuleSet set :
       {compare::RuleSet::kDefault, compare::RuleSet::kBase, compare::RuleSet::kUpstream}) {
    if (value != app::RuleSetName(set)) continue;
    options.rules = set;
    return;
  }
  PythonLog log;
  Result<config::RuleFile> file = config::ReadRuleFile(value, log);
  if (!file.ok()) RaiseError(file.error(), "ConfigError");
  options.rules = compare::RuleSet::kDefault;
  options.rule_file = std::make_shared<const config::RuleFile>(std::move(file).value());
}

app::AnalysisRun AnalyzeDumps(const app::CompareOptions& options) {
  PythonLog log;
  Result<app::AnalysisRun> run = RunInterruptible(&app::AnalyzeDifferences, options, log);
  if (!run.ok()) RaiseError(run.error(), "CompareError");
  return std::move(run).value();
}

void BindAnalysis(nb::module_& m) {
  using R = app::AnalysisRun;
  nb::class_<R>(m, "DifferenceResult", "Where two dumps differ first, over all ranks.")
      .def_prop_ro(
          "first",
          [](const R& r) {
            nb::list out;
            for (const app::FoundEntry& f : r.first) {
              nb::dict found;
              found["step"] = f.step;
              found["rank"] = f.rank;
              found["entry"] = f.entry;
              found["reason"] = f.reason;
              out.append(found);
            }
            return out;
          },
          nb::sig("def first(self, /) -> list[dict[str, Any]]"),
          "The entries found: step, rank, entry, reason. Empty when no compared output differs.")
      .def_prop_ro(
          "reports", [](const R& r) { return r.reports; }, "Paths of diff_analyze_*.json.")
      .def_prop_ro("summary_path", [](const R& r) { return r.summary_path; })
      .def_prop_ro(
          "partial", [](const R& r) { return r.partial; }, "Some rank failed or is missing.")
      .def_prop_ro("messages", [](const R& r) { return r.messages; })
      .def("__str__", [](const R& r) { return app::AnalysisAnswer(r); });
}

void SetMetrics(app::CompareOptions& options, const nb::object& source) {
  options.user_metrics = LoadUserMetrics(source);
}

// An empty path is the flag alone.
void SetApiMapping(app::CompareOptions& options, const std::string& path) {
  options.api_mapping_flag = true;
  if (path.empty()) return;
  PythonLog log;
  Result<config::ApiMap> map = config::ReadApiMapYaml(path, log);
  if (!map.ok()) RaiseError(map.error(), "ConfigError");
  options.api_mapping = std::move(map).value();
}

void SetLayerMapping(app::CompareOptions& options, const std::string& path) {
  options.layer_mapping.emplace();
  if (path.empty()) return;
  Result<config::LayerMap> map = config::ReadLayerMapYaml(path);
  if (!map.ok()) RaiseError(map.error(), "ConfigError");
  options.layer_mapping = std::move(map).value();
}

std::optional<bool> Wanted(const app::CompareOptions& o) {
  if (o.culprit == app::CulpritChoice::kAuto) return std::nullopt;
  return o.culprit == app::CulpritChoice::kOn;
}

void SetWanted(app::CompareOptions& o, std::optional<bool> wanted) {
  o.culprit = !wanted   ? app::CulpritChoice::kAuto
              : *wanted ? app::CulpritChoice::kOn
                        : app::CulpritChoice::kOff;
}

// What needs a function to be set or read.
void BindChoices(nb::class_<app::CompareOptions>& options) {
  using O = app::CompareOptions;
  options
      .def("set_api_mapping", &SetApiMapping, nb::arg("path"),
           "Functions of a MindSpore target, from a YAML file; empty: those of like names meet.")
      .def("set_layer_mapping", &SetLayerMapping, nb::arg("path"),
           "Pair by place in the module tree; a YAML file renames children, empty: none.")
      .def_prop_rw("rules", &RulesOf, &SetRules,
                   "default, base, upstream, or the path of a YAML file; reads: file.")
      .def_rw("suffix", &O::suffix, "Of file names, for two files only.")
      .def_rw("workers", &O::workers, "Threads; 0 = all cores.")
      .def("set_metrics", &SetMetrics, nb::arg("source"),
           "Metrics of yours, tensor dumps: a folder of alg_<name>.py, or names and functions.")
      .def_rw("resume", &O::resume, "Take over what an interrupted run had compared.")
      .def_rw("ranks", &O::rank_ids, "Only these ranks of folders; empty: all.")
      .def_rw("steps", &O::step_ids, "Only these steps of folders of steps; empty: all.")
      .def_prop_rw(
          "backend",
          [](const O& o) {
            return o.backend == app::Backend::kFsdp       ? "fsdp"
                   : o.backend == app::Backend::kMegatron ? "megatron"
                                                          : "";
          },
          [](O& o, const std::string& name) {
            o.backend = name == "fsdp"       ? app::Backend::kFsdp
                        : name == "megatron" ? app::Backend::kMegatron
                                             : app::Backend::kNone;
          },
          "Training against inference: fsdp or megatron; empty: no.")
      .def_prop_rw("culprit", &Wanted, &SetWanted, nb::arg().none(),
                   "Search the operator at fault; None: when old_face is false and the dumps tell.")
      .def_rw("loss_impact", &O::loss_impact, "Effects of all introduced errors on the loss.")
      .def_rw("keep_rows", &O::keep_rows, "Keep all cells for RankResult.rows().");
}

void BindOptions(nb::module_& m) {
  using O = app::CompareOptions;
  nb::class_<O> options(
      m, "CompareOptions",
      "What to compare and how; columns and files of the 8.x releases unless old_face is false.");
  options
      .def(
          "__init__",
          [](O* self, std::string target, std::string golden, std::string output_dir) {
            new (self) O;
            self->face = compare::Face::kOld;
            self->command = "compare";
            self->target = std::move(target);
            self->golden = std::move(golden);
            self->output_dir = std::move(output_dir);
          },
          nb::arg("target"), nb::arg("golden"), nb::arg("output_dir"))
      .def_prop_rw(
          "old_face", [](const O& o) { return o.face == compare::Face::kOld; },
          [](O& o, bool old) { o.face = old ? compare::Face::kOld : compare::Face::kNew; })
      .def_rw("stack_path", &O::stack_path, nb::arg().none(),
              "Shown with stack_mode; without it stack.json beside the target.")
      .def_rw("stack_mode", &O::stack_mode)
      .def_rw("advisor", &O::advisor)
      .def_rw("highlight", &O::highlight)
      .def_rw("xlsx", &O::xlsx, "Instead of csv, when old_face is false.")
      .def_rw("fuzzy", &O::fuzzy)
      .def_rw("row_log", &O::row_log)
      .def_rw("data_mapping", &O::data_mapping, nb::arg().none(),
              "Pairs of row names, target first.")
      .def_prop_rw(
          "cell_mapping", [](const O& o) { return o.cell_mapping; },
          [](O& o, std::optional<config::NameMap> map) {
            o.cell_mapping_flag = map.has_value();
            o.cell_mapping = std::move(map);
          },
          nb::arg().none(), "Pairs of module names or classes, target first.");
  BindChoices(options);
}

}  // namespace

void RegisterCompare(nb::module_& m) {
  BindOptions(m);
  BindCulpritResult(m);
  BindRank(m);
  BindRun(m);
  BindAnalysis(m);
  m.def("read_name_map", &ReadMapping, nb::arg("path"),
        "Read a -dm or -cm file: pairs of names in file order. Raises ConfigError.");
  m.def(
      "compare", &CompareDumps, nb::arg("options"),
      "Compare two dumps (files, or folders of ranks or steps) and write reports.\n\n"
      "The GIL is released; Ctrl-C stops it. Raises CompareError when nothing could be compared.");
  m.def("analyze_differences", &AnalyzeDumps, nb::arg("options"),
        "Search the first entries that differ (-da), write JSON. Raises as compare().");
}

}  // namespace msprobe::bindings
