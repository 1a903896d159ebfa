#include "app/diff_app.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "app/compare_text.h"
#include "base/file.h"
#include "base/text.h"
#include "compare/flatten.h"
#include "compare/store.h"
#include "dump/reader.h"

namespace msprobe::app {

using compare::Entry;
using compare::Leaf;
using compare::Side;

const std::vector<std::string> kDiffFigures = {"dtype", "shape", "max",     "min",
                                               "mean",  "norm",  "checksum"};

namespace {

std::vector<std::string> FiguresOf(const Leaf& leaf, bool sums) {
  // Without a recorded one the engine makes up checksums of values, for its own use.
  const std::string sum = !sums || leaf.md5 == "N/A" ? "" : std::string(leaf.md5);
  return {std::string(leaf.dtype),
          std::string(leaf.shape),
          FigureText(leaf.max),
          FigureText(leaf.min),
          FigureText(leaf.mean),
          FigureText(leaf.norm),
          sum};
}

// The leaves that a name means: all of an entry, or one row.
Result<std::vector<const Leaf*>> LeavesOf(const Side& side, const std::string& path,
                                          const std::string& name) {
  std::vector<const Leaf*> out;
  std::vector<std::string_view> names;
  for (const Entry& entry : side.entries) {
    names.emplace_back(entry.name);
    const bool whole = entry.name == name;
    if (!whole && !std::string_view(name).starts_with(entry.name)) continue;
    for (size_t i = entry.first; i < entry.first + entry.count; ++i) {
      const Leaf& leaf = side.leaves[i];
      if (whole || leaf.name == name) out.push_back(&leaf);
    }
    if (!out.empty()) return out;
  }
  const std::string_view near = Nearest(name, names);
  Error error = Error(ErrorCode::kNotFound, "has no entry or row " + VisibleText(name)).At(path);
  if (!near.empty()) return std::move(error).Hint(fmt::format("did you mean {}?", near));
  return std::move(error).Hint("`msprobe inspect` lists them");
}

// What is left of a row name behind its entry: leaves of both sides meet by it.
std::string_view Short(const Leaf& leaf, const Side& side) {
  std::string_view name = leaf.name;
  const std::string& entry = side.entries[leaf.entry].name;
  if (name.starts_with(entry) && name.size() > entry.size()) name.remove_prefix(entry.size() + 1);
  return name;
}

Result<std::string> FileOf(const std::string& json, const Leaf& leaf) {
  return ResolveInside(JoinPath(DirName(json), "dump_tensor_data"), leaf.data_name);
}

DiffItem MakeItem(const DiffOptions& options, const std::string& target_json, const Leaf& t,
                  const std::string& golden_json, const Leaf& g, bool sums) {
  DiffItem out;
  out.name = t.name;
  out.target = FiguresOf(t, sums);
  out.golden = FiguresOf(g, sums);
  if (t.data_name.empty() || g.data_name.empty()) return out;
  const Result<std::string> a = FileOf(target_json, t), b = FileOf(golden_json, g);
  if (!a.ok() || !b.ok()) {
    out.problem = (a.ok() ? b : a).error().ToString();
    return out;
  }
  Result<TensorDiff> diff = DiffTensors(*a, *b, options.limits);
  if (diff.ok()) {
    out.tensors = std::move(diff).value();
  } else {
    out.problem = diff.error().ToString();
  }
  return out;
}

Result<DiffRun> DiffEntries(const DiffOptions& options, const std::string& target_json,
                            const std::string& golden_json) {
  Side target, golden;
  MSPROBE_TRY(compare::ReadSide(target_json, target));
  MSPROBE_TRY(compare::ReadSide(golden_json, golden));
  const std::string& other = options.golden_entry.empty() ? options.entry : options.golden_entry;
  MSPROBE_ASSIGN(const std::vector<const Leaf*> left, LeavesOf(target, target_json, options.entry));
  MSPROBE_ASSIGN(const std::vector<const Leaf*> right, LeavesOf(golden, golden_json, other));
  DiffRun out;
  std::vector<bool> taken(right.size());
  for (const Leaf* t : left) {
    // Two rows that were named belong together whatever they are called.
    size_t at = left.size() == 1 && right.size() == 1 ? 0 : right.size();
    for (size_t i = 0; i < right.size() && at == right.size(); ++i) {
      if (!taken[i] && Short(*t, target) == Short(*right[i], golden)) at = i;
    }
    if (at == right.size()) {
      out.only_target.emplace_back(t->name);
      continue;
    }
    taken[at] = true;
    out.items.push_back(MakeItem(options, target_json, *t, golden_json, *right[at],
                                 target.has_md5 || golden.has_md5));
  }
  for (size_t i = 0; i < right.size(); ++i) {
    if (!taken[i]) out.only_golden.emplace_back(right[i]->name);
  }
  return out;
}

// How far an item is off, for the choice of the one that is shown in full.
double Badness(const DiffItem& item) {
  if (!item.tensors) return item.target == item.golden ? 0 : 1e-30;
  const TensorDiff& d = *item.tensors;
  return d.class_differs > 0 ? HUGE_VAL : d.relative_l2;
}

bool Differs(const DiffItem& item) {
  if (item.tensors) return item.tensors->different > 0;
  return item.target != item.golden || !item.problem.empty();
}

// Of the folder of a step, too, when it holds one rank.
std::string OneDumpFileOf(const std::string& path) {
  std::string found = DumpFileOf(path);
  if (!found.empty()) return found;
  const auto ranks = dump::ListRanks(path);
  return ranks.ok() && ranks->size() == 1 ? DumpFileOf(ranks->front().path) : std::string();
}

}  // namespace

std::string DumpFileOf(const std::string& path) {
  if (!IsDirectory(path)) return path;
  for (const char* name : {"dump.json", "debug.json"}) {
    std::string file = JoinPath(path, name);
    if (PathExists(file)) return file;
  }
  return {};
}

Result<DiffRun> Diff(const DiffOptions& options) {
  if (options.entry.empty()) {
    DiffRun out;
    DiffItem item;
    item.name = std::string(BaseName(options.target));
    MSPROBE_ASSIGN(item.tensors, DiffTensors(options.target, options.golden, options.limits));
    out.items.push_back(std::move(item));
    return out;
  }
  const std::string target = OneDumpFileOf(options.target), golden = OneDumpFileOf(options.golden);
  for (const auto& [file, given] :
       {std::pair(&target, &options.target), {&golden, &options.golden}}) {
    if (!file->empty()) continue;
    return Error(ErrorCode::kNotFound, "holds neither dump.json nor debug.json")
        .At(*given)
        .Hint("give the folder of one rank, or the file itself");
  }
  return DiffEntries(options, target, golden);
}

std::string DiffClosingLine(const DiffRun& run) {
  const size_t differ =
      static_cast<size_t>(std::count_if(run.items.begin(), run.items.end(), Differs));
  return fmt::format("{} compared, {} differ, {} on one side only", run.items.size(), differ,
                     run.only_target.size() + run.only_golden.size());
}

const DiffItem* WorstItem(const DiffRun& run) {
  const auto it = std::max_element(
      run.items.begin(), run.items.end(),
      [](const DiffItem& a, const DiffItem& b) { return Badness(a) < Badness(b); });
  return it == run.items.end() ? nullptr : &*it;
}

}  // namespace msprobe::app
