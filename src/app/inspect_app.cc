#include "app/inspect_app.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/compare_html_rows.h"
#include "app/compare_text.h"
#include "app/diff_app.h"
#include "base/file.h"
#include "base/text.h"
#include "compare/flatten.h"
#include "compare/store.h"
#include "dump/reader.h"
#include "formats/tensor_file.h"
#include "metrics/tensor_stats.h"

namespace msprobe::app {
namespace {

using compare::Direction;
using compare::Side;

std::string_view KindName(Direction direction) {
  switch (direction) {
    case Direction::kForward:
      return "forward";
    case Direction::kBackward:
      return "backward";
    case Direction::kGrad:
      return "gradients";
    case Direction::kOther:
      break;
  }
  return "other";
}

bool Takes(const std::string& pattern, const std::string& name) {
  if (pattern.empty()) return true;
  if (pattern.find_first_of("*?") != std::string::npos) return MatchesPattern(name, pattern);
  // A row name takes its entry.
  return name.starts_with(pattern) || std::string_view(pattern).starts_with(name + ".");
}

InspectLeaf MakeLeaf(const compare::Leaf& leaf, const std::string& entry, bool sums) {
  InspectLeaf out;
  std::string_view name = leaf.name;
  if (name.starts_with(entry) && name.size() > entry.size()) name.remove_prefix(entry.size() + 1);
  out.name = name;
  out.dtype = leaf.is_null ? "null" : std::string(leaf.dtype);
  out.shape = leaf.shape;
  out.max = FigureText(leaf.max);
  out.min = FigureText(leaf.min);
  out.mean = FigureText(leaf.mean);
  out.norm = FigureText(leaf.norm);
  // Without a recorded one the engine makes up checksums of values, for its own use.
  if (sums && leaf.md5 != "N/A") out.checksum = leaf.md5;
  out.file = leaf.data_name;
  return out;
}

void CountFiles(const Side& side, const std::string& folder, InspectDump& out) {
  for (const compare::Leaf& leaf : side.leaves) {
    if (leaf.data_name.empty()) continue;
    ++out.files;
    if (!ResolveInside(folder, leaf.data_name).ok()) ++out.missing_files;
  }
}

Status ReadOne(const InspectOptions& options, bool entries, InspectDump& out) {
  Side side;
  MSPROBE_TRY(compare::ReadSide(out.path, side));
  out.task = side.info.header.task;
  out.level = side.info.header.level;
  out.framework = side.info.header.framework;
  out.complete = side.info.header.complete.value_or(false);
  out.recovered = side.info.journal_entries;
  if (side.info.torn && side.info.tear) out.torn = side.info.tear->ToString();
  out.entries = side.entries.size();
  out.leaves = side.leaves.size();
  CountFiles(side, JoinPath(DirName(out.path), "dump_tensor_data"), out);
  for (const compare::Entry& e : side.entries) {
    ++out.kinds[std::string(KindName(compare::ParseEntryName(e.name).direction))];
  }
  if (!entries) return {};
  const std::string folder = DirName(out.path);
  dump::StackTable stacks;
  if (const std::string path = JoinPath(folder, "stack.json"); PathExists(path)) {
    MSPROBE_ASSIGN(stacks, dump::ReadStack(path));
  }
  std::unordered_map<std::string, std::string> construct;
  if (const std::string path = JoinPath(folder, "construct.json"); PathExists(path)) {
    MSPROBE_ASSIGN(construct, dump::ReadConstruct(path));
  }
  std::vector<std::string_view> names;
  for (const compare::Entry& e : side.entries) names.emplace_back(e.name);
  const ModuleTree tree(names, std::move(construct));
  for (const compare::Entry& e : side.entries) {
    if (!Takes(options.entry, e.name)) continue;
    InspectEntry entry;
    entry.name = e.name;
    entry.module = tree.PathOf(e.name);
    if (const auto* stack = stacks.Find(e.name)) entry.stack = *stack;
    for (size_t i = e.first; i < e.first + e.count; ++i) {
      entry.leaves.push_back(MakeLeaf(side.leaves[i], e.name, side.has_md5));
    }
    out.matching.push_back(std::move(entry));
  }
  if (!out.matching.empty() || options.entry.empty()) return {};
  const std::string_view near = Nearest(options.entry, names);
  Error error = Error(ErrorCode::kNotFound, "no entry is named so: " + VisibleText(options.entry))
                    .At(out.path);
  return near.empty() ? std::move(error)
                      : std::move(error).Hint(fmt::format("did you mean {}?", near));
}

std::string NumberText(const metrics::Number& n) {
  struct Visitor {
    std::string operator()(std::monostate) const { return "None"; }
    std::string operator()(bool b) const { return b ? "True" : "False"; }
    std::string operator()(int64_t i) const { return std::to_string(i); }
    std::string operator()(uint64_t i) const { return std::to_string(i); }
    std::string operator()(double d) const { return PyFloatRepr(d); }
  };
  return std::visit(Visitor{}, n);
}

Result<InspectRun> InspectTensor(const std::string& path) {
  constexpr uint64_t kMostBytes = 8ull << 30;
  MSPROBE_ASSIGN(const formats::TensorFile file, formats::TensorFile::Open(path));
  InspectRun out;
  out.tensor.emplace_back("format", file.format());
  for (const formats::StoredTensor& t : file.tensors()) {
    const std::string prefix = t.name.empty() ? "" : t.name + " ";
    out.tensor.emplace_back(prefix + "dtype", ShortName(t.dtype));
    out.tensor.emplace_back(prefix + "shape", ShapeText(t.shape));
    out.tensor.emplace_back(prefix + "elements", std::to_string(t.num_elements));
    const uint64_t bytes = static_cast<uint64_t>(t.num_elements) * ItemSize(t.dtype);
    if (bytes > kMostBytes) continue;
    std::vector<std::byte> data(bytes);
    MSPROBE_TRY(file.ReadAll(t, data.data()));
    const TensorView view{.data = data.data(), .dtype = t.dtype, .shape = t.shape, .strides = {}};
    const metrics::TensorStats s = metrics::StatsOf(view);
    out.tensor.emplace_back(prefix + "max", NumberText(s.max));
    out.tensor.emplace_back(prefix + "min", NumberText(s.min));
    out.tensor.emplace_back(prefix + "mean", NumberText(s.mean));
    out.tensor.emplace_back(prefix + "norm", NumberText(s.norm));
    out.tensor.emplace_back(prefix + "nan", std::to_string(s.nan));
    out.tensor.emplace_back(prefix + "inf", std::to_string(s.inf));
  }
  return out;
}

// A rank that cannot be read is one line of the list, not the end of it.
void AddRanks(const InspectOptions& options, const std::string& step, const std::string& folder,
              InspectRun& out) {
  const auto ranks = dump::ListRanks(folder);
  if (!ranks.ok()) return;
  for (const dump::RankDir& rank : *ranks) {
    InspectDump one;
    one.step = step;
    one.rank = rank.name;
    one.path = DumpFileOf(rank.path);
    if (one.path.empty()) {
      one.path = rank.path;
      one.problem = "holds neither dump.json nor debug.json";
    } else if (const Status read = ReadOne(options, false, one); !read.ok()) {
      one.problem = read.error().ToString();
    }
    out.dumps.push_back(std::move(one));
  }
}

}  // namespace

bool MatchesPattern(std::string_view text, std::string_view pattern) {
  // On a mismatch the last star takes one more character: linear in practice, never exponential.
  size_t t = 0, p = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

Result<InspectRun> Inspect(const InspectOptions& options) {
  if (!PathExists(options.path)) {
    return Error(ErrorCode::kNotFound, "does not exist").At(options.path);
  }
  InspectRun out;
  const std::string file = DumpFileOf(options.path);
  if (!file.empty()) {
    if (!file.ends_with(".json")) return InspectTensor(file);
    InspectDump one;
    one.path = file;
    MSPROBE_TRY(ReadOne(options, true, one));
    out.dumps.push_back(std::move(one));
    return out;
  }
  MSPROBE_ASSIGN(const std::vector<dump::StepDir> steps, dump::ListSteps(options.path));
  for (const dump::StepDir& step : steps) AddRanks(options, step.name, step.path, out);
  if (steps.empty()) AddRanks(options, "", options.path, out);
  if (out.dumps.empty()) {
    return Error(ErrorCode::kNotFound, "holds no dump")
        .At(options.path)
        .Hint("give dump.json, the folder of a rank, of a step, or of all steps");
  }
  if (!options.entry.empty() && out.dumps.size() > 1) {
    return Error(ErrorCode::kInvalidArgument, "an entry is looked up in one rank")
        .At("--entry")
        .Hint("give one of the folders, like " + DirName(out.dumps.front().path));
  }
  if (out.dumps.size() == 1 && out.dumps.front().problem.empty()) {
    MSPROBE_TRY(ReadOne(options, true, out.dumps.front()));
  }
  return out;
}

std::string InspectClosingLine(const InspectRun& run) {
  if (run.dumps.empty()) return fmt::format("{} figures of a tensor file", run.tensor.size());
  uint64_t entries = 0, torn = 0, unreadable = 0;
  for (const InspectDump& d : run.dumps) {
    entries += d.entries;
    torn += !d.torn.empty();
    unreadable += !d.problem.empty();
  }
  std::string out = fmt::format("dumps {}, entries {}, torn {}, unreadable {}", run.dumps.size(),
                                entries, torn, unreadable);
  if (run.dumps.size() == 1) out += fmt::format(", matching {}", run.dumps.front().matching.size());
  return out;
}

}  // namespace msprobe::app
