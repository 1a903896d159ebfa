// The comparison engine: two dumps of one rank in, rows out, in report order. Texts are made in
// app; here outcomes are enums.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "config/compare_config.h"
#include "metrics/pair_metrics.h"
#include "tensor/view.h"

namespace msprobe::compare {

enum class Face : uint8_t { kOld, kNew };  // architecture.md 5
enum class Mode : uint8_t { kTensor, kStatistics, kMd5 };
enum class RuleSet : uint8_t { kBase, kDefault, kUpstream };
enum class State : uint8_t { kInput, kOutput, kParameters, kParametersGrad, kDebug };

// A statistic or scalar as the dump has it: for cells and comparison (compare.md 4.3, 4.4).
struct CellValue {
  enum class Kind : uint8_t { kNone, kUnknown, kBool, kInt, kBigInt, kDouble, kText };
  Kind kind = Kind::kNone;  // kNone: text `None`; kUnknown: `N/A`
  bool b = false;
  int64_t i = 0;
  double d = 0;
  std::string_view text = {};  // kText, kBigInt
};

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
  bool is_null = false;               // a null leaf
  bool is_tensor = false;             // has a dtype of its own: a tensor, not a Python value
  bool is_device = false;             // the leaf's type is torch.device
  std::string_view p2p_op, p2p_peer;  // of a P2POp, else empty (`None`)
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
};

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

struct Row {
  const Leaf* target = nullptr;  // nullptr: golden-only
  const Leaf* golden = nullptr;  // nullptr: unmatched
  bool dropped_pair =
      false;  // both are shown, but the type (or, old face, shape) filter made them unmatched
  bool fuzzy = false;       // names differ, matched by the fuzzy matcher
  bool uncompared = false;  // counts as unmatched, whatever word the old face has for it
  Gate gate = Gate::kCompared;
  std::string unreadable;  // reason of kUnreadable, with the file name; detail of other gates where
                           // there is one
  bool dtype_differs = false;  // after conversion (gate 11)
  bool class_differs =
      false;  // some NaN or infinity stands against another class or sign (tensor mode)
  double relative_l2 = -1;       // |N - B| / |B| of the elements, tensor mode; < 0: unknown
  metrics::PairMetrics metrics;  // tensor mode, kCompared and kZeroDim
  std::array<StatCell, 4> diff, relative;  // statistics mode: max, min, mean, l2norm
  bool grad_consistent = true;
  Verdict verdict = Verdict::kPass;  // new face
  std::vector<Rule> rules;
  OldAccuracy accuracy = OldAccuracy::kNone;  // old face, tensor mode
  OldResult result = OldResult::kEmpty;       // old face, statistics and md5
  std::vector<Highlight> highlights;          // old face with highlight
  bool red = false, yellow = false;
  bool first_of_entry = false;  // carries the stack
};

struct Options {
  Face face = Face::kNew;
  RuleSet rules = RuleSet::kBase;
  bool fuzzy = false;
  bool highlight = false;
  std::optional<config::NameMap> data_mapping, cell_mapping;
  bool cell_mapping_flag = false;  // -cm without a file
  unsigned workers = 0;            // 0 = all cores
  uint64_t memory_limit = 0;       // bytes of tensor buffers; 0 = a default
};

using FileMap = std::unordered_map<std::string, std::string>;

struct Input {
  std::string target_json, golden_json;     // dump.json or debug.json of one rank
  std::optional<std::string> target_stack;  // shown when set
  // Tensor files that stand in for recorded ones (postprocess.h), by `data_name`.
  std::shared_ptr<const FileMap> target_files = {}, golden_files = {};
};

struct Counts {
  uint64_t pass = 0, warning = 0, error = 0, unmatched = 0, total = 0;
  uint64_t yes = 0, no = 0, none = 0;  // old words of tensor mode
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
  std::vector<Row> rows;  // report order, golden-only rows last
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
// compare (kNothingToDo).
Result<Comparison> CompareRank(const Input& input, const Options& options, LogSink& log,
                               ProgressSink& progress, const CancelToken* cancel);

// The literal text behind a rule, gate or highlight (compare.md 10.4, 12), for app.
std::string_view RuleText(Rule rule);
std::string_view HighlightText(Highlight reason);

}  // namespace msprobe::compare
