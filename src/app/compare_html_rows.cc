#include "app/compare_html_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <unordered_set>

#include "app/compare_text.h"
#include "app/json_rows.h"
#include "compare/statistics.h"
#include "compare/store.h"
#include "json/json.h"

namespace msprobe::app {
namespace {

using compare::CellClass;
using compare::CellValue;
using compare::Comparison;
using compare::Direction;
using compare::Gate;
using compare::Leaf;
using compare::Mode;
using compare::Row;
using compare::State;
using report::Cell;
using report::HtmlColumn;
using Kind = report::HtmlColumn::Kind;

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool IsWrong(std::string_view verdict) { return verdict == "error" || verdict == "warning"; }

bool IsResult(const Row& row) {
  const State state = row.target->state;
  return state == State::kOutput || state == State::kParametersGrad || state == State::kDebug;
}

// |a - b| of one statistic: NaN when there is nothing to say, infinity when the classes differ.
double StatisticDistance(const CellValue& a, const CellValue& b) {
  double x = 0, y = 0;
  const CellClass ca = compare::ClassOf(a, x), cb = compare::ClassOf(b, y);
  const auto known = [](CellClass c) {
    return c == CellClass::kNan || c == CellClass::kInf || c == CellClass::kNegInf ||
           c == CellClass::kNumber;
  };
  if (!known(ca) || !known(cb)) return kNothing;
  if (ca != cb) return kInfinity;
  return ca == CellClass::kNumber ? std::abs(x - y) : 0;
}

double Size(const CellValue& cell) {
  double value = 0;
  return compare::ClassOf(cell, value) == CellClass::kNumber ? std::abs(value) : 0;
}

// A distance at the scale of the golden side; equal is zero at every scale.
double Scaled(double distance, double scale) {
  if (std::isnan(distance) || distance == 0) return distance;
  return scale > 0 ? distance / scale : kInfinity;
}

// The larger of two, where NaN says nothing.
double Larger(double a, double b) {
  if (std::isnan(a)) return b;
  return std::isnan(b) ? a : std::max(a, b);
}

double StatisticsError(const Row& row) {
  const Leaf &t = *row.target, &g = *row.golden;
  const double scale = std::max(Size(g.max), Size(g.min));
  double out = Scaled(StatisticDistance(t.max, g.max), scale);
  out = Larger(out, Scaled(StatisticDistance(t.min, g.min), scale));
  out = Larger(out, Scaled(StatisticDistance(t.mean, g.mean), scale));
  return Larger(out, Scaled(StatisticDistance(t.norm, g.norm), Size(g.norm)));
}

Cell ValueCell(const CellValue& value) {
  switch (value.kind()) {
    case CellValue::Kind::kNone:
      return Cell::Text("None");
    case CellValue::Kind::kUnknown:
      return {};
    case CellValue::Kind::kBool:
      return Cell::Bool(value.as_bool());
    case CellValue::Kind::kInt:
      return Cell::Int(value.as_int());
    case CellValue::Kind::kDouble:
      return Cell::Double(value.as_double());
    case CellValue::Kind::kBigInt:
    case CellValue::Kind::kText:
      return Cell::Text(value.text());
  }
  return {};
}

std::string_view GradText(const Leaf& leaf) {
  if (leaf.requires_grad == Leaf::Grad::kUnknown) return {};
  return leaf.requires_grad == Leaf::Grad::kTrue ? "True" : "False";
}

std::string_view SeriesOf(Direction direction, State state) {
  switch (state) {
    case State::kParameters:
      return "parameters";
    case State::kParametersGrad:
      return "parameter gradients";
    case State::kDebug:
      return "saved";
    case State::kInput:
      return direction == Direction::kBackward ? "backward in" : "forward in";
    case State::kOutput:
      return direction == Direction::kBackward ? "backward out" : "forward out";
  }
  return {};
}

// The texts of Err_message, one a line.
class Messages {
 public:
  explicit Messages(compare::Face face) : face_(face) {}

  std::string Of(const Row& row, Mode mode) {
    std::string text = ErrMessage(row, mode, face_);
    if (face_ == compare::Face::kOld || text == "[]") return text == "[]" ? "" : text;
    if (text != last_) {
      last_lines_.clear();
      if (const auto list = json::ParseDocument(text); list.ok() && list->root().is_array()) {
        for (const json::Value& item : list->root()) {
          if (!last_lines_.empty()) last_lines_ += '\n';
          if (item.is_string()) last_lines_ += item.as_string();
        }
      }
      last_ = std::move(text);
    }
    return last_lines_;
  }

 private:
  compare::Face face_;
  std::string last_, last_lines_;  // neighbours often say the same
};

// One row's cells, in the order of HtmlColumns().
class RowMaker {
 public:
  RowMaker(const RankJob& job, const Comparison& comparison, compare::Face face)
      : job_(job), comparison_(comparison), face_(face), messages_(face), tree_(Tree()) {}

  std::span<const Cell> Cells(const Row& row, std::string_view cause, double inputs);
  const ModuleTree& tree() const { return tree_; }

 private:
  ModuleTree Tree() const;
  void NewEntry(const Row& row, bool golden);
  void AddSides(const Row& row);
  void AddFigures(const Row& row);
  void AddSketch(const Row& row);
  void AddPlaces(const Row& row);
  void Text(std::string_view text) { cells_.push_back(Cell::Text(text)); }

  const RankJob& job_;
  const Comparison& comparison_;
  compare::Face face_;
  Messages messages_;
  ModuleTree tree_;
  std::vector<Cell> cells_;
  const std::string* entry_ = nullptr;
  Direction direction_ = Direction::kOther;
  std::string path_, stack_, message_;
};

ModuleTree RowMaker::Tree() const {
  std::unordered_map<std::string, std::string> construct;
  const std::string path = JoinPath(DirName(job_.target_json), "construct.json");
  if (PathExists(path)) {
    // Without it calls stand outside the modules; the comparison does not need it.
    if (auto read = dump::ReadConstruct(path); read.ok()) construct = std::move(read).value();
  }
  std::vector<std::string_view> entries;
  const std::string* last = nullptr;
  for (const Row& row : comparison_.rows) {
    const Leaf& leaf = row.target != nullptr ? *row.target : *row.golden;
    const std::string& entry = comparison_.EntryName(leaf, row.target == nullptr);
    if (&entry != last) entries.push_back(entry);
    last = &entry;
  }
  return ModuleTree(entries, std::move(construct));
}

void RowMaker::NewEntry(const Row& row, bool golden) {
  const Leaf& leaf = golden ? *row.golden : *row.target;
  const std::string& entry = comparison_.EntryName(leaf, golden);
  if (&entry == entry_) return;
  entry_ = &entry;
  direction_ = compare::ParseEntryName(entry).direction;
  path_ = tree_.PathOf(entry);
  stack_.clear();
  const std::vector<std::string>* stack = golden ? nullptr : comparison_.Stack(leaf);
  if (stack == nullptr) return;
  for (const std::string& line : *stack) {
    if (!stack_.empty()) stack_ += '\n';
    stack_ += line.substr(0, line.find_last_not_of('\n') + 1);
  }
}

void RowMaker::AddSides(const Row& row) {
  const auto pair = [&](auto get) {
    for (const Leaf* leaf : {row.target, row.golden}) {
      cells_.push_back(leaf == nullptr ? Cell() : get(*leaf));
    }
  };
  pair([](const Leaf& l) { return Cell::Text(l.dtype); });
  pair([](const Leaf& l) { return Cell::Text(l.shape); });
  pair([](const Leaf& l) { return Cell::Text(GradText(l)); });
  if (comparison_.mode == Mode::kMd5) {
    pair([](const Leaf& l) { return Cell::Text(l.md5); });
    return;
  }
  pair([](const Leaf& l) { return ValueCell(l.max); });
  pair([](const Leaf& l) { return ValueCell(l.min); });
  pair([](const Leaf& l) { return ValueCell(l.mean); });
  pair([](const Leaf& l) { return ValueCell(l.norm); });
}

void RowMaker::AddFigures(const Row& row) {
  if (comparison_.mode != Mode::kTensor) return;
  const metrics::PairMetrics& m = *row.metrics;
  const bool all = row.gate == Gate::kCompared;
  const bool some = all || row.gate == Gate::kZeroDim;
  const auto add = [&](bool there, double value) {
    cells_.push_back(there ? Cell::Double(value) : Cell());
  };
  using metrics::CosineCase;
  const bool cosine = m.cosine_case == CosineCase::kValue;
  const bool equal = m.cosine_case == CosineCase::kBothZero;
  add(all && m.cosine_case != CosineCase::kOneElement, cosine ? m.cosine : (equal ? 1 : kNothing));
  add(all, m.euclidean);
  add(some, m.max_abs);
  add(some, m.max_rel);
  add(all, m.below_thousandth);
  add(all, m.below_five_thousandths);
  Text(row.target != nullptr ? row.target->data_name : std::string_view());
  Text(row.golden != nullptr ? row.golden->data_name : std::string_view());
}

// Estimates of dumps with sketches; below the floor of float32 slots a relative distance is a
// bound.
void RowMaker::AddSketch(const Row& row) {
  if (comparison_.mode == Mode::kTensor) return;
  const compare::SketchPair& sketch = *row.sketch;
  if (sketch.distance) {
    const metrics::SketchDistance& d = *sketch.distance;
    const bool told = !d.below_floor;
    cells_.push_back(told ? Cell::Double(d.relative) : Cell::Text("< 1.5e-7"));
    cells_.push_back(told ? Cell::Double(d.relative_bar) : Cell());
    for (const double value : {d.distance, d.distance_bar, d.cosine, d.cosine_bar}) {
      cells_.push_back(Cell::Double(value));
    }
  } else {
    cells_.insert(cells_.end(), 6, Cell());
  }
  using Bits = compare::SketchPair::Bits;
  Text(sketch.bits == Bits::kUnknown ? "" : sketch.bits == Bits::kEqual ? "True" : "False");
}

// What the commands of the details need: where the dumps are and the names on both sides.
void RowMaker::AddPlaces(const Row& row) {
  const bool both = row.target != nullptr && row.golden != nullptr;
  const bool same = both && row.target->name == row.golden->name;
  Text(row.target != nullptr ? job_.target_json : job_.golden_json);
  Text(same ? job_.golden_json : std::string_view());
  Text(both && !same ? job_.golden_json : std::string_view());
  Text(both && !same ? row.golden->name : std::string_view());
}

std::span<const Cell> RowMaker::Cells(const Row& row, std::string_view cause, double inputs) {
  const bool golden = row.target == nullptr;
  NewEntry(row, golden);
  const Leaf& leaf = golden ? *row.golden : *row.target;
  const std::string_view verdict = NeutralVerdict(row, face_);
  const double error = RelativeError(row, comparison_.mode);
  message_ = row.uncompared ? std::string(NotComparedReason(row, comparison_.mode)) : "";
  const std::string more = messages_.Of(row, comparison_.mode);
  if (!more.empty()) message_ += (message_.empty() ? "" : "\n") + more;
  if (!row.unreadable->empty()) message_ += "\n" + *row.unreadable;
  if (IsWrong(verdict) && !std::isnan(error) && IsResult(row) && !std::isnan(inputs)) {
    message_ += fmt::format("{}relative error {:.2g}; the inputs of this call differ by {:.2g}",
                            message_.empty() ? "" : "\n", error, inputs);
  }
  cells_.clear();
  Text(verdict);
  Text(leaf.name);
  Text(*entry_);
  Text(path_);
  Text(SeriesOf(direction_, leaf.state));
  Text(cause);
  if (std::isnan(error)) {
    cells_.emplace_back();
  } else {
    cells_.push_back(Cell::Double(error));
  }
  Text(stack_);
  AddPlaces(row);
  AddSides(row);
  AddFigures(row);
  AddSketch(row);
  Text(message_);
  return cells_;
}

// Largest error of the inputs of the call that row `first` begins; NaN: no figure.
double InputsError(const Comparison& comparison, size_t first, size_t last) {
  double out = kNothing;
  for (size_t i = first; i < last; ++i) {
    const Row& row = comparison.rows[i];
    if (row.target != nullptr && !IsResult(row)) {
      out = Larger(out, RelativeError(row, comparison.mode));
    }
  }
  return out;
}

// One past the last row of the call that row `first` begins.
size_t EndOfCall(const Comparison& comparison, size_t first) {
  const Row& begin = comparison.rows[first];
  if (begin.target == nullptr) return first + 1;
  size_t last = first + 1;
  while (last < comparison.rows.size() && comparison.rows[last].target != nullptr &&
         comparison.rows[last].target->entry == begin.target->entry) {
    ++last;
  }
  return last;
}

}  // namespace

double RelativeError(const Row& row, Mode mode) {
  if (row.target == nullptr || row.golden == nullptr || mode == Mode::kMd5) return kNothing;
  if (row.dropped_pair) return kNothing;
  if (mode == Mode::kStatistics) {
    const auto& sketch = row.sketch->distance;
    const bool seen = sketch && !sketch->below_floor;
    return Larger(StatisticsError(row), seen ? sketch->relative : kNothing);
  }
  if (row.class_differs || row.gate == Gate::kNonFinitePositions) return kInfinity;
  if (row.gate == Gate::kZeroDim)
    return std::isnan(row.metrics->max_rel) ? 0 : row.metrics->max_rel;
  if (row.gate != Gate::kCompared || row.relative_l2 < 0) return kNothing;
  return std::isnan(row.relative_l2) ? kInfinity : row.relative_l2;
}

namespace {

struct Columns {
  std::vector<HtmlColumn> all;

  // Hidden at first without a width; a width of 0 takes the room that is left.
  void Add(std::string key, std::string title, Kind kind, int width = -1, std::string help = {}) {
    all.push_back({.key = std::move(key),
                   .title = std::move(title),
                   .kind = kind,
                   .shown = width >= 0,
                   .width = std::max(width, 0),
                   .help = std::move(help)});
  }
  void AddSides(const std::string& key, Kind kind) {
    Add("t_" + key, key + ", target", kind);
    Add("g_" + key, key + ", golden", kind);
  }
  void AddSketches() {
    Add("sketch", "Sketch", Kind::kNumber, 85, "relative distance, estimated from the sketches");
    for (const char* key : {"sketch_bar", "sketch_distance", "sketch_distance_bar", "sketch_cosine",
                            "sketch_cosine_bar"}) {
      Add(key, key, Kind::kNumber);
    }
    Add("bits", "all bits equal", Kind::kCategory);
  }
  void AddMetrics() {
    Add("cosine", "Cosine", Kind::kNumber, 85, "cosine of the angle between both tensors");
    Add("euclidean", "distance", Kind::kNumber);
    Add("max_abs", "Max abs", Kind::kNumber, 85, "largest absolute difference of two elements");
    Add("max_rel", "largest relative difference", Kind::kNumber);
    Add("thousandth", "within 0.001", Kind::kNumber);
    Add("five", "within 0.005", Kind::kNumber);
    AddSides("file", Kind::kText);
  }
};

}  // namespace

std::vector<HtmlColumn> HtmlColumns(Mode mode) {
  Columns columns;
  columns.Add("verdict", "Verdict", Kind::kCategory, 105);
  columns.Add("name", "Name", Kind::kText, 0);
  columns.Add("entry", "Call", Kind::kCategory);
  columns.Add("tree", "Module", Kind::kCategory);
  columns.Add("series", "Place", Kind::kCategory);
  columns.Add("cause", "Cause", Kind::kCategory);
  columns.Add("error", "Error", Kind::kNumber, mode == Mode::kMd5 ? -1 : 85,
              "relative error, see the plot");
  columns.Add("stack", "Stack", Kind::kCategory);
  for (const char* key : {"t_dump", "g_dump", "g_other", "other_name"}) {
    columns.Add(key, key, Kind::kCategory);
  }
  columns.AddSides("dtype", Kind::kCategory);
  columns.Add("t_shape", "Shape", Kind::kCategory, 110, "shape on the target side");
  columns.Add("g_shape", "shape, golden", Kind::kCategory);
  columns.AddSides("grad", Kind::kCategory);
  if (mode == Mode::kMd5) {
    columns.AddSides("md5", Kind::kText);
  } else {
    for (const char* key : {"max", "min", "mean", "norm"}) columns.AddSides(key, Kind::kNumber);
  }
  if (mode == Mode::kTensor) {
    columns.AddMetrics();
  } else {
    columns.AddSketches();
  }
  columns.Add("message", "Why", Kind::kText, 0);
  return std::move(columns.all);
}

std::vector<std::string_view> CausesOf(const Comparison& comparison, compare::Face face,
                                       const ModuleTree& tree) {
  std::vector<std::string_view> out(comparison.rows.size());
  bool begun = false;
  std::unordered_set<std::string> around;  // branches that hold a call where an error begins
  for (size_t first = 0, last = 0; first < out.size(); first = last) {
    last = EndOfCall(comparison, first);
    if (comparison.rows[first].target == nullptr) continue;
    bool inputs_wrong = false, gradients_only = true;
    for (size_t i = first; i < last; ++i) {
      const Row& row = comparison.rows[i];
      gradients_only = gradients_only && row.target->state == State::kParametersGrad;
      // Another scalar argument is a cause by itself.
      const bool argument =
          std::find(row.rules.begin(), row.rules.end(), compare::Rule::kR4) != row.rules.end();
      inputs_wrong =
          inputs_wrong || (!IsResult(row) && !argument && IsWrong(NeutralVerdict(row, face)));
    }
    // Gradients of parameters have no inputs of their own: they explain nothing that was wrong
    // before.
    const std::string path =
        tree.PathOf(comparison.EntryName(*comparison.rows[first].target, false));
    const bool passed_on = inputs_wrong || (gradients_only && begun);
    const bool encloses = !passed_on && around.contains(path);
    bool begins = false;
    for (size_t i = first; i < last; ++i) {
      const Row& row = comparison.rows[i];
      if (!IsWrong(NeutralVerdict(row, face))) continue;
      const bool follows = passed_on || row.consequence;
      out[i] = follows ? kPassedOn : (encloses ? kAround : kBegins);
      begins = begins || (!follows && !encloses);
    }
    begun = begun || begins;
    if (!begins) continue;
    for (size_t end = path.rfind('\x1f'); end != std::string::npos && end > 0;
         end = path.rfind('\x1f', end - 1)) {
      around.insert(path.substr(0, end));
    }
  }
  return out;
}

ModuleTree::ModuleTree(const std::vector<std::string_view>& entries,
                       std::unordered_map<std::string, std::string> construct)
    : construct_(std::move(construct)) {
  for (const std::string_view entry : entries) {
    std::string_view base = compare::ParseEntryName(entry).base;
    if (!base.starts_with("Module.") && !base.starts_with("Cell.")) continue;
    base.remove_prefix(base.find('.') + 1);
    const size_t dot = base.rfind('.');
    if (dot == std::string_view::npos) continue;
    class_of_.emplace(base.substr(0, dot), base.substr(dot + 1));
  }
}

// "layers.2.norm.LayerNorm" to "layers", "2 (Block)", "norm (LayerNorm)".
std::string ModuleTree::ModulePath(std::string_view base) const {
  const size_t dot = base.rfind('.');
  if (dot == std::string_view::npos) return std::string(base);
  const std::string_view path = base.substr(0, dot);
  std::string out;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    if (!out.empty()) out += '\x1f';
    out += path.substr(begin, end - begin);
    if (const auto it = class_of_.find(std::string(path.substr(0, end))); it != class_of_.end()) {
      out += " (" + it->second + ")";
    }
    begin = end + 1;
  }
  return out;
}

std::string ModuleTree::PathOf(std::string_view entry) const {
  constexpr int kMostSteps = 64;  // a ring of parents ends as well
  std::string leaf;
  std::string at(entry);
  for (int step = 0; step < kMostSteps; ++step) {
    const std::string_view base = compare::ParseEntryName(at).base;
    if (base.starts_with("Module.") || base.starts_with("Cell.")) {
      const std::string path = ModulePath(base.substr(base.find('.') + 1));
      return leaf.empty() ? path : path + '\x1f' + leaf;
    }
    if (leaf.empty()) leaf = base;
    const auto it = construct_.find(at);
    if (it == construct_.end() || it->second.empty()) break;
    at = it->second;
  }
  return leaf;
}

report::HtmlTable HtmlRows(const RankJob& job, const Comparison& comparison, compare::Face face,
                           const std::vector<bool>& keep, const CancelToken* cancel) {
  const std::vector<HtmlColumn> columns = HtmlColumns(comparison.mode);
  report::HtmlTable out(columns);
  RowMaker maker(job, comparison, face);
  const std::vector<std::string_view> causes = CausesOf(comparison, face, maker.tree());
  size_t end = 0;
  double inputs = kNothing;
  for (size_t i = 0; i < comparison.rows.size(); ++i) {
    if (cancel != nullptr && cancel->cancelled()) break;
    if (i >= end) {
      end = EndOfCall(comparison, i);
      inputs = InputsError(comparison, i, end);
    }
    if (keep[i]) out.Row(maker.Cells(comparison.rows[i], causes[i], inputs));
  }
  return out;
}

}  // namespace msprobe::app
