// The comparison engine: two dumps of one rank in, rows out, in report order. Texts are made in
// app; here outcomes are enums.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "config/compare_config.h"
#include "config/module_maps.h"
#include "config/rule_config.h"
#include "metrics/pair_metrics.h"
#include "metrics/sketch.h"
#include "tensor/view.h"

namespace msprobe {
class CorePool;
}

namespace msprobe::compare {

class PieceJournal;  // piece_journal.h

enum class Face : uint8_t { kOld, kNew };  // architecture.md 5
enum class Mode : uint8_t { kTensor, kStatistics, kMd5 };
enum class RuleSet : uint8_t { kBase, kDefault, kUpstream };
enum class State : uint8_t { kInput, kOutput, kParameters, kParametersGrad, kDebug };

// A statistic or scalar as the dump has it: for cells and comparison (compare.md 4.3, 4.4). A dump
// has four of them per leaf, hence the 16 bytes; each accessor is for its own kinds only.
class CellValue {
 public:
  enum class Kind : uint8_t { kNone, kUnknown, kBool, kInt, kBigInt, kDouble, kText };
  CellValue() = default;  // kNone: text `None`; kUnknown: `N/A`
  static CellValue Bool(bool value);
  static CellValue Int(int64_t value);
  static CellValue Double(double value);
  // Borrowed; texts beyond 4 GiB are cut.
  static CellValue Text(std::string_view text) { return Borrow(Kind::kText, text); }
  static CellValue BigInt(std::string_view digits) { return Borrow(Kind::kBigInt, digits); }

  Kind kind() const { return kind_; }
  bool as_bool() const { return u_.b; }    // kBool
  int64_t as_int() const { return u_.i; }  // kInt
  double as_double() const;                // kDouble; kBigInt: the nearest, or an infinity
  std::string_view text() const {          // kText; kBigInt: the digits
    return {u_.chars, size_};
  }

 private:
  static CellValue Borrow(Kind kind, std::string_view text);
  Kind kind_ = Kind::kNone;
  uint32_t size_ = 0;
  union {
    bool b;
    int64_t i;
    double d;
    const char* chars;
  } u_ = {};
};

// What few leaves have.
struct LeafMore {
  std::string_view word;              // of a memory format, which has no `value`
  std::string_view lack_reason;       // behind Leaf::lack
  std::string_view hash64;            // of the elements, 16 hex digits; empty: not recorded
  std::string_view p2p_op, p2p_peer;  // of a P2POp, else empty (`None`)
};
inline constexpr LeafMore kNothingMore;

// One leaf of one side. Texts live as long as the Comparison's store.
struct Leaf {
  std::string_view name;  // row name (compare.md 4.2)
  uint32_t entry = 0;     // index in Side::entries
  State state = State::kInput;
  std::string_view dtype, shape;  // texts of 4.3; empty for a null leaf
  CellValue max, min, mean, norm;
  std::string_view md5;        // "N/A" for null leaves
  std::string_view data_name;  // "" = no file (`-1`)
  enum class Grad : uint8_t { kUnknown, kFalse, kTrue } requires_grad = Grad::kUnknown;
  bool is_null = false;     // a null leaf
  bool is_tensor = false;   // has a dtype of its own: a tensor, not a Python value
  bool is_device = false;   // the leaf's type is torch.device
  bool has_sum = false;     // a checksum was recorded, not derived from a value
  bool packed = false;      // sparse, vmap: the file holds another shape by nature
  bool no_storage = false;  // meta and fake tensors: there are no values
  // Why there is nothing to compare although a leaf stands there; `lack_reason` says more.
  enum class Lack : uint8_t { kNothing, kMalformed, kAbsent, kNoValue } lack = Lack::kNothing;
  int64_t nan = -1, inf = -1;  // counts of elements; -1: not recorded
  int64_t sketch = -1;         // index in Side::sketches; -1: none, or one that lies
  const LeafMore* more = &kNothingMore;
};

// Why the metrics of a row are what they are (the gates of compare.md 7.2, in order).
enum class Gate : uint8_t {
  kCompared,
  kNoTargetFile,
  kNoGoldenFile,
  kNoGoldenRow,
  kUnreadable,
  kEmpty,
  kShapes,
  kZeroDim,
  kNotFloat,
  kNonFinitePositions,
  kNoTargetRow,    // golden-only row (D2)
  kDTypes,         // the type filter parted the pair (dropped_pair; both sides are shown)
  kChecksumKinds,  // md5 mode: crc against xor or hash64 (decisions.md 34)
  kNoValues,       // nothing was recorded that could be compared; `unreadable` says why
  kEmptyGolden,    // the golden tensor has no elements, the target's has (D21)
  kBothEmpty,      // neither has elements, and the records agree
  kNotReached,     // the run was interrupted before
};

// Which training framework a consistency comparison is of (compare.md 18); kNone: none.
enum class Backend : uint8_t { kNone, kFsdp, kMegatron };

enum class Verdict : uint8_t { kPass, kWarning, kError, kUnmatched };

// Rules that hit a row, in rule order (compare.md 10.4); kR8Warning is the warning form of R8.
// kClass is a correction (D1, D6): NaN or infinity at other positions, of other sign, or on the
// golden side only, where R1 does not say so; it comes right after R1.
enum class Rule : uint8_t {
  kR1,
  kR2t,
  kR2s,
  kR3,
  kR4,
  kR5,
  kR6,
  kR7t,
  kR7s,
  kR8Error,
  kR8Warning,
  kClass
};
// Rules of the default set beyond R1 to R8 (decisions.md 25), with the ids of --explain-rules.
// Notes (N) say something about a row and change no verdict.
enum class QRule : uint8_t {
  kQ1,  // error: numbers of NaN or infinite elements differ where extremes do not show it
  kQ2,  // exact types (bool, integers) differ: error for results, warning for inputs
  kQ3,  // error: a result is off by more than rounding and its own inputs explain
  kQ4,  // error: a parameter or input is off, and nothing recorded before it is
  kQ5,  // warning: shapes differ by dimensions of 1 only
  kQ6,  // warning: off, as what came before is: a consequence
  kN1,  // note: floating types differ, judged at the coarser one
  kN2,  // note: integer types differ in width
  kN3,  // note: a few exact values flipped where inputs differ by rounding
  kN4,  // note: what a rule says here follows from an earlier entry
  kN5,  // note: paired by position and likeness, not by name
  kN6,  // note: judged by recorded statistics, a tensor file is missing
};
struct Finding {
  QRule rule = QRule::kQ1;
  Verdict level = Verdict::kPass;  // kPass: a note
  double value = 0, limit = 0;     // what was found and what is explained, in the rule's unit
  std::string_view origin = {};    // kQ6, kN4: name of the target row that it follows from
};
// Reasons of highlighting (compare.md 11), each once per row (D14: upstream repeats them per
// input).
enum class Highlight : uint8_t { kH1, kH2, kH3, kH4, kH5, kH6, kH7, kH8, kH9 };

enum class OldAccuracy : uint8_t { kYes, kNo, kNone, kUnmatched };  // Accuracy Reached or Not
enum class OldResult : uint8_t {
  kEmpty,
  kWarning,
  kNotCompared,
  kPass,
  kDifferent
};  // Result, statistics and md5

struct StatCell {  // one cell of … diff / …RelativeErr
  enum class Kind : uint8_t {
    kNumber,
    kPercent,
    kZeroText,
    kNan,
    kInf,
    kNegInf,
    kNotAvailable,
    kDiff
  };
  Kind kind = Kind::kNotAvailable;
  double value = 0;
};

// How far the numbers of a pair are apart, whatever they were read from: elements in tensor mode,
// recorded statistics elsewhere. Errors and values are paired so that the deviation can be taken at
// any scale: |a - b| / (|b| + scale).
struct Evidence {
  struct Point {
    double error = 0, value = 0;  // |a - b| and |b| at one place
  };
  bool known = false;
  bool exact = false;               // both sides bool or integers
  bool differs = false;             // at all
  uint8_t points = 0;               // of `point`
  std::array<Point, 5> point = {};  // tensors: the largest error, and the largest for its value
  double rms = 0;                   // root mean square, the larger of both sides
  double elements = 1;
  double unequal = -1;                     // elements that differ; < 0: not known
  double unit = 0;                         // unit roundoff of the coarser dtype; 0: exact types
  double DeviationAt(double scale) const;  // largest over the points; 0 when nothing differs
};

// What sketches and hashes say of a pair (culprit.md 5).
struct SketchPair {
  std::optional<metrics::SketchDistance> distance;
  enum class Bits : uint8_t { kUnknown, kEqual, kDifferent } bits = Bits::kUnknown;
};

// The eight cells of a row in statistics mode: max, min, mean, l2norm.
struct StatCells {
  std::array<StatCell, 4> diff, relative;
};

// What few rows have, or those of one mode only: a pointer's size, and the value's own defaults
// until it is edited.
template <class T>
class Rare {
 public:
  Rare() = default;
  Rare(const Rare& other) : value_(other.value_ ? std::make_unique<T>(*other.value_) : nullptr) {}
  Rare(Rare&&) noexcept = default;
  Rare& operator=(Rare other) noexcept {
    value_ = std::move(other.value_);
    return *this;
  }
  ~Rare() = default;
  const T& operator*() const {
    static const T kDefault{};
    return value_ ? *value_ : kDefault;
  }
  const T* operator->() const { return &**this; }
  T& Edit() {
    if (!value_) value_ = std::make_unique<T>();
    return *value_;
  }

 private:
  std::unique_ptr<T> value_;
};

// Up to N small values in the order they were added.
template <class T, size_t N>
class InlineList {
 public:
  using const_iterator = const T*;
  const T* begin() const { return values_.data(); }
  const T* end() const { return values_.data() + size_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  void push_back(T value) { insert(end(), value); }
  // The list has each value at most once; one that stands there already stays where it is.
  void insert(const T* before, T value) {
    if (std::find(begin(), end(), value) != end() || size_ == N) return;
    const auto at = static_cast<size_t>(before - begin());
    std::copy_backward(begin() + at, end(), values_.data() + size_ + 1);
    values_[at] = value;
    ++size_;
  }
  template <class Test>
  size_t EraseIf(Test test) {
    const size_t before = size_;
    size_ = static_cast<uint8_t>(std::remove_if(values_.data(), values_.data() + size_, test) -
                                 values_.data());
    return before - size_;
  }
  bool operator==(std::initializer_list<T> other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }

 private:
  std::array<T, N> values_ = {};
  uint8_t size_ = 0;
};

struct Row {
  const Leaf* target = nullptr;  // nullptr: golden-only
  const Leaf* golden = nullptr;  // nullptr: unmatched
  bool dropped_pair =
      false;  // both are shown, but the type (or, old face, shape) filter made them unmatched
  bool fuzzy = false;       // names differ, matched by the fuzzy matcher
  bool uncompared = false;  // counts as unmatched, whatever word the old face has for it
  Gate gate = Gate::kCompared;
  bool dtype_differs = false;  // after conversion (gate 11)
  bool class_differs =
      false;  // some NaN or infinity stands against another class or sign (tensor mode)
  bool has_statistics = false;  // statistics mode: both sides' are compared (StatisticsCells)
  bool default_words = false;   // by the default rules' reading of words (D16)
  bool grad_consistent = true;
  Verdict verdict = Verdict::kPass;           // new face
  bool consequence = false;                   // follows from an earlier row; counted apart
  bool merged = false;                        // one side stands for several leaves
  bool proposed = false;                      // paired by likeness (match.h)
  OldAccuracy accuracy = OldAccuracy::kNone;  // old face, tensor mode
  OldResult result = OldResult::kEmpty;       // old face, statistics and md5
  bool red = false, yellow = false;
  bool first_of_entry = false;          // carries the stack
  InlineList<Rule, 12> rules;           // in rule order
  InlineList<Highlight, 9> highlights;  // old face with highlight
  Rare<std::string> unreadable;         // reason of kUnreadable, with the file name; detail of
                                        // other gates where there is one
  Rare<metrics::PairMetrics> metrics;   // tensor mode, kCompared and kZeroDim
  Rare<SketchPair> sketch;
  double relative_l2 = -1;        // |N - B| / |B| of the elements, tensor mode; < 0: unknown
  Evidence evidence;              // numbers for the default rules
  std::vector<Finding> findings;  // default rule set only
};

// Differences of recorded statistics: not available unless has_statistics. Integers are subtracted
// exactly. With default_words equal texts that are no numbers are no difference of zero (D16): NaN
// against NaN is NaN, equal words are not available.
StatCells StatisticsCells(const Row& row);
// StatisticsCells(row).relative[3] alone.
StatCell NormErrorCell(const Row& row);

// A part of the tensors of a rank, cut by bytes: the index-th of `count`.
struct Share {
  uint32_t index = 0, count = 1;
};

struct Options {
  Face face = Face::kNew;
  RuleSet rules = RuleSet::kBase;
  bool fuzzy = false;
  bool highlight = false;
  std::optional<config::NameMap> data_mapping, cell_mapping;
  bool cell_mapping_flag = false;                  // -cm without a file
  std::optional<config::ApiMap> api_mapping = {};  // -am; targets of MindSpore only
  bool api_mapping_flag = false;                   // -am without a file: functions of like names
  std::optional<config::LayerMap> layer_mapping = {};  // -lm; no rules: names map to themselves
  unsigned workers = 0;                                // 0 = all cores
  Backend backend = Backend::kNone;                    // training against inference
  std::string_view name_join = ";  ";                  // between the names of a merged row
  CorePool* cores = nullptr;  // threads shared with other ranks, instead of `workers`
  uint64_t memory_limit = 0;  // bytes of tensor buffers; 0 = a default
  std::shared_ptr<const config::RuleFile> rule_file = {};  // changes of the default set
  // Tensor mode: figures of the tensors of this part go to the journal, and rows are not judged.
  std::optional<Share> share = {};
  std::vector<Share> lost = {};  // tensors that are not read: their reader died each time
};

using FileMap = std::unordered_map<std::string, std::string>;

struct Input {
  std::string target_json, golden_json;     // dump.json or debug.json of one rank
  std::optional<std::string> target_stack;  // shown when set
  // Tensor files that stand in for recorded ones (postprocess.h), by `data_name`.
  std::shared_ptr<const FileMap> target_files = {}, golden_files = {};
  std::string scratch = {};         // folder for joined tensors, with a backend only
  PieceJournal* journal = nullptr;  // figures of an earlier run, and where those of this one go
};

struct Counts {
  uint64_t pass = 0, warning = 0, error = 0, unmatched = 0, total = 0;
  uint64_t yes = 0, no = 0, none = 0;  // old words of tensor mode
  uint64_t consequences = 0;           // of warning and error: rows that follow from an earlier one
};

// First entry in execution order with a wrong output whose own inputs are right.
struct FirstBad {
  std::string entry, row;  // entry name and row name
  std::string reason;      // one sentence with the numbers
  uint64_t row_index = 0;  // 0-based data row
};

struct Comparison {
  Mode mode = Mode::kStatistics;
  bool is_debug = false;
  bool shows_stack = false;
  bool shows_sketch = false;  // both dumps have sketches: columns of their own
  bool by_layers = false;     // -lm was in force
  bool interrupted = false;   // cancelled while tensors were compared: some rows are kNotReached
  std::vector<Row> rows;      // report order, golden-only rows last
  std::vector<std::string> entry_of_row() const;
  Counts counts;
  std::optional<FirstBad> first_bad;
  std::vector<std::string> notes;  // recovered entries, stripped prefixes, duplicate keys, …
  // Entry name of a leaf and its stack lines.
  const std::string& EntryName(const Leaf& leaf, bool golden) const;
  const std::vector<std::string>* Stack(const Leaf& target) const;

  struct Store;  // owns leaves, entry names and stacks
  std::shared_ptr<const Store> store;
};

// Errors: unreadable or contradictory inputs (kMismatch for different tasks or kinds), nothing to
// compare (kNothingToDo), kCancelled before the first figure of a tensor.
Result<Comparison> CompareRank(const Input& input, const Options& options, LogSink& log,
                               ProgressSink& progress, const CancelToken* cancel);

// Frameworks whose dumps -am is for, as `framework` of dump.json names them.
bool IsMindSpore(std::string_view framework);
// The refusal of -am for a target of PyTorch.
Error ApiMappingError(const std::string& path);

// The literal text behind a rule, gate or highlight (compare.md 10.4, 12), for app.
std::string_view RuleText(Rule rule);
// One sentence: what was found, and what it follows from.
std::string FindingText(const Finding& finding);
// "R1", "class"; "Q3", "N1".
std::string_view RuleId(Rule rule);
std::string_view RuleId(QRule rule);
std::string_view HighlightText(Highlight reason);

}  // namespace msprobe::compare
