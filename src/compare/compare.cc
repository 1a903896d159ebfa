#include "compare/compare.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "base/thread_pool.h"
#include "compare/consistent.h"
#include "compare/evidence.h"
#include "compare/first_bad.h"
#include "compare/flatten.h"
#include "compare/highlight.h"
#include "compare/judge.h"
#include "compare/layer_map.h"
#include "compare/match.h"
#include "compare/scratch_folder.h"
#include "compare/sketches.h"
#include "compare/statistics.h"
#include "compare/store.h"
#include "compare/tensor_metrics.h"

namespace msprobe::compare {
namespace {

constexpr std::string_view kDebugFile = "debug.json";

Status CheckSide(const Side& side, const std::string& path) {
  const dump::Header& header = side.info.header;
  if (header.task.empty()) {
    return Error(ErrorCode::kMalformed, "no task is recorded")
        .At(path)
        .Key("task")
        .Hint("a dump.json of a tensor or statistics task is expected");
  }
  if (!header.has_data) {
    return Error(ErrorCode::kMalformed, "missing, or not an object").At(path).Key("data");
  }
  return {};
}

bool IsStatisticsTask(std::string_view task) { return task == "statistics"; }

bool HasStatistics(const Side& side) {
  return std::any_of(side.leaves.begin(), side.leaves.end(), [](const Leaf& leaf) {
    return leaf.is_tensor && leaf.norm.kind() != CellValue::Kind::kNone;
  });
}

// The default rules compare dumps of different kinds by the statistics that both hold.
bool MeetInStatistics(const Side& target, const Side& golden, RuleSet rules, std::string_view why,
                      std::vector<std::string>& notes) {
  const auto known = [](const Side& side) {
    return side.info.header.task == "tensor" || IsStatisticsTask(side.info.header.task);
  };
  if (rules != RuleSet::kDefault || !known(target) || !known(golden)) return false;
  if (!HasStatistics(target) || !HasStatistics(golden)) return false;
  notes.push_back(fmt::format("{}: the statistics of both are compared", why));
  return true;
}

Result<Mode> DetectMode(const Side& target, const Side& golden, const Input& input, RuleSet rules,
                        std::vector<std::string>& notes) {
  MSPROBE_TRY(CheckSide(target, input.target_json));
  MSPROBE_TRY(CheckSide(golden, input.golden_json));
  const std::string& task = target.info.header.task;
  if (task != golden.info.header.task) {
    const std::string why =
        fmt::format("a dump of task {} against one of task {}", task, golden.info.header.task);
    if (MeetInStatistics(target, golden, rules, why, notes)) return Mode::kStatistics;
    return Error(ErrorCode::kMismatch, fmt::format("its task is {}, that of {} is {}", task,
                                                   input.golden_json, golden.info.header.task))
        .At(input.target_json)
        .Key("task")
        .Hint("both dumps must be of the same task");
  }
  if (task != "tensor" && !IsStatisticsTask(task)) {
    return Error(ErrorCode::kUnsupported,
                 fmt::format("a dump of task {} holds no values to compare", task))
        .At(input.target_json)
        .Key("task")
        .Hint("tensor or statistics is expected");
  }
  for (const auto& [side, path] :
       {std::pair(&target, &input.target_json), {&golden, &input.golden_json}}) {
    if (side->entries.empty()) {
      // A run that was killed early has its entries in the journal alone, which is easily left
      // behind: it is hidden.
      const bool ended = side->info.header.complete.has_value();
      return Error(ErrorCode::kNothingToDo, "it has no entries")
          .At(*path)
          .Key("data")
          .Hint(ended ? ""
                      : "if the run was killed, its entries are in .msprobe_journal beside the "
                        "file: copy the whole folder");
    }
  }
  if (task == "tensor") return Mode::kTensor;
  if (target.has_md5 == golden.has_md5) return target.has_md5 ? Mode::kMd5 : Mode::kStatistics;
  const bool target_has = target.has_md5;
  if (MeetInStatistics(target, golden, rules, "only one dump has checksums", notes)) {
    return Mode::kStatistics;
  }
  return Error(ErrorCode::kMismatch,
               fmt::format("only {} has checksums",
                           target_has ? input.target_json : input.golden_json))
      .At(target_has ? input.golden_json : input.target_json)
      .Key("md5")
      .Hint("both dumps must have checksums, or neither");
}

// Kinds of checksums by their texts: `0x` and hex digits (xor), a decimal integer (xor of early
// releases), 8 hex digits (crc), `h64:` and 16 hex digits (hash64).
enum class SumKind : uint8_t { kUnknown, kCrc, kXor, kHash };

SumKind KindOfSum(std::string_view text) {
  const auto all = [](std::string_view t, std::string_view set) {
    return !t.empty() && t.find_first_not_of(set) == std::string_view::npos;
  };
  constexpr std::string_view kHex = "0123456789abcdefABCDEF";
  if (text.starts_with("0x")) return all(text.substr(2), kHex) ? SumKind::kXor : SumKind::kUnknown;
  if (text.starts_with("h64:")) {
    return text.size() == 20 && all(text.substr(4), kHex) ? SumKind::kHash : SumKind::kUnknown;
  }
  if (text.size() == 8 && all(text, kHex)) return SumKind::kCrc;
  const std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
  return digits.size() > 10 && all(digits, "0123456789") ? SumKind::kXor : SumKind::kUnknown;
}

// The kind of a side: that of its first tensor with a sum that can be told.
SumKind KindOfSide(const Side& side) {
  for (const Leaf& leaf : side.leaves) {
    if (!leaf.is_tensor) continue;
    if (const SumKind kind = KindOfSum(leaf.md5); kind != SumKind::kUnknown) return kind;
  }
  return SumKind::kUnknown;
}

void ChecksumKinds(const Comparison::Store& store, std::vector<Row>& rows,
                   std::vector<std::string>& notes) {
  const SumKind t_side = KindOfSide(store.target), g_side = KindOfSide(store.golden);
  const auto kind = [](const Leaf& leaf, SumKind side) {
    const SumKind own = KindOfSum(leaf.md5);
    return own == SumKind::kUnknown ? side : own;
  };
  bool any = false;
  for (Row& row : rows) {
    if (!row.target || !row.golden || row.gate != Gate::kCompared || !row.target->is_tensor) {
      continue;
    }
    const SumKind t = kind(*row.target, t_side), g = kind(*row.golden, g_side);
    if (t == g || t == SumKind::kUnknown || g == SumKind::kUnknown) continue;
    row.gate = Gate::kChecksumKinds;
    any = true;
  }
  if (any) {
    notes.emplace_back(
        "the two dumps hold different kinds of checksums: tensors cannot be compared");
  }
}

// Tensor mode: pairs without files are judged by what was recorded of them.
void StatisticsWhereFilesLack(std::vector<Row>& rows) {
  for (Row& row : rows) {
    if (row.gate != Gate::kNoTargetFile && row.gate != Gate::kNoGoldenFile) continue;
    if (!row.target->is_tensor || !row.golden->is_tensor) continue;
    row.evidence = StatisticsEvidence(*row.target, *row.golden);
  }
}

void Note(const Side& side, std::string_view which, std::vector<std::string>& notes) {
  if (side.info.torn) {
    notes.push_back(fmt::format(
        "{}: recovered {} of at least {} entries{}", which, side.info.entries,
        side.info.entries + 1, side.info.tear ? "; " + side.info.tear->ToString() : std::string()));
  }
  if (side.info.journal_entries > 0) {
    notes.push_back(fmt::format("{}: {} entries come from the journal of an interrupted run", which,
                                side.info.journal_entries));
  }
  if (side.duplicates > 0) {
    notes.push_back(fmt::format("{}: {} entries stand in the file twice, the last of each counts",
                                which, side.duplicates));
  }
  if (side.duplicate_keys > 0) {
    notes.push_back(fmt::format("{}: {} keys inside entries stand twice, the last of each counts",
                                which, side.duplicate_keys));
  }
  if (side.malformed > 0) {
    notes.push_back(
        fmt::format("{}: {} records are malformed and cannot be compared", which, side.malformed));
  }
  if (side.info.header.format_version.value_or(1) > 1) {
    notes.push_back(fmt::format("{}: written in format version {}, newer than this tool's", which,
                                *side.info.header.format_version));
  }
}

// D27: names that are neither a call nor a module nor gradients are compared all the same, by the
// whole name.
void NoteOddNames(const Side& side, std::string_view which, std::vector<std::string>& notes) {
  const auto odd = [](const Entry& e) {
    return ParseEntryName(e.name).direction == Direction::kOther;
  };
  const auto count = std::count_if(side.entries.begin(), side.entries.end(), odd);
  if (count == 0) return;
  const auto first = std::find_if(side.entries.begin(), side.entries.end(), odd);
  notes.push_back(fmt::format(
      "{}: {} entries have names of no known form and are matched by the whole name, first {}",
      which, count, first->name));
}

// The recorded answers of the new release list no golden-only saves of debug.json; the base rule
// set keeps to the letter of those, names them in a note and counts them as unmatched (D2 asks for
// "at least in the summary").
uint64_t LeaveOutGoldenOnly(const Comparison::Store& store, std::vector<Row>& rows,
                            std::vector<std::string>& notes) {
  const auto first = std::find_if(rows.begin(), rows.end(), [](const Row& r) { return !r.target; });
  std::string names;
  for (auto it = first; it != rows.end(); ++it) {
    if (!names.empty()) names += ", ";
    if (names.size() > 1000) {
      names += "…";
      break;
    }
    names += it->golden->name;
  }
  const auto left_out = static_cast<uint64_t>(rows.end() - first);
  if (left_out == 0) return 0;
  notes.push_back(fmt::format("{} of the {} golden rows have no target row: {}", left_out,
                              store.golden.leaves.size(), names));
  rows.erase(first, rows.end());
  return left_out;
}

Status ReadBoth(const Input& input, const Options& options, Comparison::Store& store) {
  Status status[2];
  const auto read = [&](size_t i) {
    status[i] = i == 0 ? ReadSide(input.target_json, store.target)
                       : ReadSide(input.golden_json, store.golden);
  };
  if (options.cores != nullptr) {
    ParallelFor(2, *options.cores, read);
  } else {
    ParallelFor(2, options.workers, read);
  }
  for (Status& s : status) MSPROBE_TRY(std::move(s));
  return {};
}

TensorFolders FoldersOf(const Input& input) {
  constexpr std::string_view kFolder = "dump_tensor_data";
  return {.target = JoinPath(DirName(input.target_json), kFolder),
          .golden = JoinPath(DirName(input.golden_json), kFolder),
          .target_files = input.target_files,
          .golden_files = input.golden_files,
          .journal = input.journal};
}

// Training against inference: pairs modules, and joins the tensors of those that are fused.
Status MatchConsistent(const Input& input, const Options& options, Comparison::Store& store,
                       ScratchFolder& scratch, TensorFolders& folders, Comparison& out,
                       LogSink& log) {
  if (out.mode != Mode::kTensor) {
    return Error(ErrorCode::kUnsupported, "--consistent_check compares dumps of the task tensor")
        .At(input.target_json)
        .Key("task");
  }
  out.rows = ConsistentRows(store.target, store.golden, options, out.notes);
  const bool golden = options.backend == Backend::kMegatron;
  auto files = std::make_shared<FileMap>();
  JoinMergedTensors(out.rows, golden, golden ? folders.golden : folders.target, scratch, *files,
                    log);
  (golden ? folders.golden_files : folders.target_files) = std::move(files);
  return {};
}

void CompareStatistics(std::vector<Row>& rows, RuleSet rules) {
  for (Row& row : rows) {
    if (!row.target || !row.golden || row.gate == Gate::kDTypes) continue;
    row.has_statistics = true;
    row.default_words = rules == RuleSet::kDefault;
    const bool tensors = row.target->is_tensor && row.golden->is_tensor;
    if (rules == RuleSet::kDefault && tensors && row.gate != Gate::kNoValues) {
      row.evidence = StatisticsEvidence(*row.target, *row.golden, *row.sketch);
    }
  }
}

// Pairs by name or, with -lm, by place.
Status Match(const Input& input, const Options& options, Comparison::Store& store,
             Comparison& out) {
  std::optional<std::vector<uint32_t>> partners;
  if (options.layer_mapping) {
    MSPROBE_ASSIGN(partners, ReadLayerPartners(store.target, store.golden, input,
                                               *options.layer_mapping, out.notes));
    out.by_layers = partners.has_value();
  }
  const MatchContext context = {out.is_debug, partners ? &*partners : nullptr};
  out.rows = MatchRows(store.target, store.golden, options, context, out.notes);
  return {};
}

// compare.md 1.4: the mapping of functions is from MindSpore to PyTorch.
Status CheckApiMapping(const Input& input, const Options& options, const Side& target) {
  if (!options.api_mapping && !options.api_mapping_flag) return {};
  if (IsMindSpore(target.info.header.framework)) return {};
  return ApiMappingError(input.target_json);
}

bool IsDebug(const Input& input, const Comparison::Store& store) {
  return BaseName(input.target_json) == kDebugFile || store.target.info.header.level == "debug";
}

}  // namespace

bool IsMindSpore(std::string_view framework) {
  return framework == "mindspore" || framework == "mindtorch";
}

Error ApiMappingError(const std::string& path) {
  return Error(ErrorCode::kUnsupported,
               fmt::format("is not for PyTorch dumps, and {} is one", path))
      .At("-am")
      .Hint("leave it out; -dm pairs rows by a mapping file");
}

// Reads both dumps and what goes with them; what kind of comparison they make.
Status Open(const Input& input, const Options& options, Comparison::Store& store, Comparison& out,
            const CancelToken* cancel) {
  MSPROBE_TRY(ReadBoth(input, options, store));
  if (cancel && cancel->cancelled()) return Error(ErrorCode::kCancelled, "interrupted");
  MSPROBE_ASSIGN(out.mode, DetectMode(store.target, store.golden, input, options.rules, out.notes));
  MSPROBE_TRY(CheckApiMapping(input, options, store.target));
  out.is_debug = IsDebug(input, store);
  Note(store.target, "target", out.notes);
  Note(store.golden, "golden", out.notes);
  if (!out.is_debug) {
    NoteOddNames(store.target, "target", out.notes);
    NoteOddNames(store.golden, "golden", out.notes);
  }
  if (input.target_stack) {
    MSPROBE_ASSIGN(store.stack, dump::ReadStack(*input.target_stack));
    out.shows_stack = true;
  }
  return {};
}

Result<Comparison> CompareRank(const Input& input, const Options& options, LogSink& log,
                               ProgressSink& progress, const CancelToken* cancel) {
  Comparison out;
  auto store = std::make_shared<Comparison::Store>();
  MSPROBE_TRY(Open(input, options, *store, out, cancel));
  ScratchFolder scratch(input.scratch);
  TensorFolders folders = FoldersOf(input);
  if (options.backend == Backend::kNone) {
    MSPROBE_TRY(Match(input, options, *store, out));
  } else {
    MSPROBE_TRY(MatchConsistent(input, options, *store, scratch, folders, out, log));
  }
  const auto proposed = static_cast<uint64_t>(
      std::count_if(out.rows.begin(), out.rows.end(), [](const Row& r) { return r.proposed; }));
  if (proposed > 0) {
    out.notes.push_back(fmt::format(
        "{} rows have no partner by name and are paired by order and likeness (N5)", proposed));
  }
  MarkUnrecorded(out.rows, out.mode, options.rules);
  out.shows_sketch = CompareSketches(*store, out.rows, out.notes);
  uint64_t left_out = 0;  // not in the table, counted all the same
  if (out.is_debug && options.face == Face::kNew && options.rules == RuleSet::kBase) {
    left_out = LeaveOutGoldenOnly(*store, out.rows, out.notes);
  }
  if (out.mode == Mode::kTensor) {
    MSPROBE_TRY(CompareTensors(out.rows, folders, options, progress, cancel));
    if (options.share) return out;
    out.interrupted = std::any_of(out.rows.begin(), out.rows.end(),
                                  [](const Row& row) { return row.gate == Gate::kNotReached; });
    if (options.rules == RuleSet::kDefault) StatisticsWhereFilesLack(out.rows);
  } else if (out.mode == Mode::kMd5) {
    ChecksumKinds(*store, out.rows, out.notes);
  } else {
    CompareStatistics(out.rows, options.rules);
  }
  JudgeRows(out.rows, store->target, out.mode, options);
  if (options.face == Face::kOld && options.highlight && !out.is_debug) {
    HighlightRows(out.rows, out.mode, options);
  }
  out.counts = CountRows(out.rows, out.mode, options);
  out.counts.unmatched += left_out;
  out.counts.total += left_out;
  out.first_bad = FindFirstBad(out.rows, store->target, out.mode, options);
  for (const std::string& note : out.notes) log.Warning(note);
  out.store = std::move(store);
  return out;
}

const std::string& Comparison::EntryName(const Leaf& leaf, bool golden) const {
  return (golden ? store->golden : store->target).entries[leaf.entry].name;
}

std::vector<std::string> Comparison::entry_of_row() const {
  std::vector<std::string> names;
  names.reserve(rows.size());
  for (const Row& row : rows) {
    names.push_back(row.target ? EntryName(*row.target, false) : EntryName(*row.golden, true));
  }
  return names;
}

const std::vector<std::string>* Comparison::Stack(const Leaf& target) const {
  return store->stack ? store->stack->Find(EntryName(target, false)) : nullptr;
}

}  // namespace msprobe::compare
