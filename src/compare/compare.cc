#include "compare/compare.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "base/thread_pool.h"
#include "compare/first_bad.h"
#include "compare/flatten.h"
#include "compare/highlight.h"
#include "compare/judge.h"
#include "compare/match.h"
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

Result<Mode> DetectMode(const Side& target, const Side& golden, const Input& input) {
  MSPROBE_TRY(CheckSide(target, input.target_json));
  MSPROBE_TRY(CheckSide(golden, input.golden_json));
  const std::string& task = target.info.header.task;
  if (task != golden.info.header.task) {
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
      return Error(ErrorCode::kNothingToDo, "it has no entries").At(*path).Key("data");
    }
  }
  if (task == "tensor") return Mode::kTensor;
  if (target.has_md5 == golden.has_md5) return target.has_md5 ? Mode::kMd5 : Mode::kStatistics;
  const bool target_has = target.has_md5;
  return Error(ErrorCode::kMismatch,
               fmt::format("only {} has checksums",
                           target_has ? input.target_json : input.golden_json))
      .At(target_has ? input.golden_json : input.target_json)
      .Key("md5")
      .Hint("both dumps must have checksums, or neither");
}

// Kinds of checksums by their texts: `0x` and hex digits (xor), a decimal integer (xor of early
// releases), 8 hex digits (crc), other hex texts of at least 16 digits (hash64).
enum class SumKind : uint8_t { kUnknown, kCrc, kXor, kHash };

SumKind KindOfSum(std::string_view text) {
  const auto all = [](std::string_view t, std::string_view set) {
    return !t.empty() && t.find_first_not_of(set) == std::string_view::npos;
  };
  constexpr std::string_view kHex = "0123456789abcdefABCDEF";
  if (text.starts_with("0x")) return all(text.substr(2), kHex) ? SumKind::kXor : SumKind::kUnknown;
  if (text.starts_with("hash64:")) return SumKind::kHash;
  if (text.size() == 8 && all(text, kHex)) return SumKind::kCrc;
  if (text.size() == 16 && all(text, kHex)) return SumKind::kHash;
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
  const SumKind t = KindOfSide(store.target), g = KindOfSide(store.golden);
  if (t == g || t == SumKind::kUnknown || g == SumKind::kUnknown) return;
  notes.emplace_back("the two dumps hold different kinds of checksums: tensors cannot be compared");
  for (Row& row : rows) {
    if (row.target && row.golden && row.gate == Gate::kCompared && row.target->is_tensor) {
      row.gate = Gate::kChecksumKinds;
    }
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
  if (side.info.header.format_version.value_or(1) > 1) {
    notes.push_back(fmt::format("{}: written in format version {}, newer than this tool's", which,
                                *side.info.header.format_version));
  }
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

Status ReadBoth(const Input& input, unsigned workers, Comparison::Store& store) {
  Status status[2];
  ParallelFor(2, workers, [&](size_t i) {
    status[i] = i == 0 ? ReadSide(input.target_json, store.target)
                       : ReadSide(input.golden_json, store.golden);
  });
  for (Status& s : status) MSPROBE_TRY(std::move(s));
  return {};
}

TensorFolders FoldersOf(const Input& input) {
  constexpr std::string_view kFolder = "dump_tensor_data";
  return {.target = JoinPath(DirName(input.target_json), kFolder),
          .golden = JoinPath(DirName(input.golden_json), kFolder),
          .target_files = input.target_files,
          .golden_files = input.golden_files};
}

bool IsDebug(const Input& input, const Comparison::Store& store) {
  return BaseName(input.target_json) == kDebugFile || store.target.info.header.level == "debug";
}

}  // namespace

Result<Comparison> CompareRank(const Input& input, const Options& options, LogSink& log,
                               ProgressSink& progress, const CancelToken* cancel) {
  Comparison out;
  auto store = std::make_shared<Comparison::Store>();
  MSPROBE_TRY(ReadBoth(input, options.workers, *store));
  if (cancel && cancel->cancelled()) return Error(ErrorCode::kCancelled, "interrupted");
  MSPROBE_ASSIGN(out.mode, DetectMode(store->target, store->golden, input));
  out.is_debug = IsDebug(input, *store);
  Note(store->target, "target", out.notes);
  Note(store->golden, "golden", out.notes);
  if (input.target_stack) {
    MSPROBE_ASSIGN(store->stack, dump::ReadStack(*input.target_stack));
    out.shows_stack = true;
  }
  out.rows = MatchRows(store->target, store->golden, options, out.is_debug);
  uint64_t left_out = 0;  // not in the table, counted all the same
  if (out.is_debug && options.face == Face::kNew && options.rules == RuleSet::kBase) {
    left_out = LeaveOutGoldenOnly(*store, out.rows, out.notes);
  }
  if (out.mode == Mode::kTensor) {
    MSPROBE_TRY(CompareTensors(out.rows, FoldersOf(input), options.workers, options.memory_limit,
                               progress, cancel));
  } else if (out.mode == Mode::kMd5) {
    ChecksumKinds(*store, out.rows, out.notes);
  } else {
    for (Row& row : out.rows) {
      if (row.target && row.golden && row.gate != Gate::kDTypes) StatisticsMetrics(row);
    }
  }
  JudgeRows(out.rows, out.mode, options);
  if (options.face == Face::kOld && options.highlight && !out.is_debug) {
    HighlightRows(out.rows, out.mode, options);
  }
  out.counts = CountRows(out.rows, out.mode, options);
  out.counts.unmatched += left_out;
  out.counts.total += left_out;
  out.first_bad = FindFirstBad(out.rows, store->target, out.mode, options.face);
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
