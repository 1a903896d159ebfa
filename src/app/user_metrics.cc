#include "app/user_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "app/compare_table.h"
#include "base/file.h"
#include "base/text.h"
#include "compare/pair_reader.h"

namespace msprobe::app {
namespace {

using compare::Comparison;
using compare::Gate;

// The dtype that NumPy has for elements of `dtype`.
DType WideOf(DType dtype) {
  if (dtype == DType::kBF16 || IsFloat8(dtype)) return DType::kF32;
  return dtype == DType::kC32 ? DType::kC64 : dtype;
}

Result<UserTensor> ReadTensor(const std::string& folder,
                              const std::shared_ptr<const compare::FileMap>& files,
                              const compare::Leaf& leaf) {
  std::string path;
  if (files != nullptr) {
    const auto it = files->find(std::string(leaf.data_name));
    if (it != files->end()) path = it->second;
  }
  if (path.empty()) {
    MSPROBE_ASSIGN(path, ResolveInside(folder, leaf.data_name));
  }
  MSPROBE_ASSIGN(compare::TensorSource source, compare::TensorSource::Open(path));
  MSPROBE_TRY(source.Load());
  const formats::StoredTensor& stored = source.tensor();
  std::vector<std::byte> unused;
  MSPROBE_ASSIGN(const std::byte* data, source.Read(0, stored.num_elements, unused));
  UserTensor out;
  out.dtype = WideOf(stored.dtype);
  out.shape = stored.shape;
  const auto count = static_cast<size_t>(stored.num_elements);
  out.bytes.resize(count * ItemSize(out.dtype));
  if (out.dtype == stored.dtype) {
    if (count > 0) std::memcpy(out.bytes.data(), data, out.bytes.size());
    return out;
  }
  const size_t parts = IsComplex(out.dtype) ? 2 : 1;
  for (size_t i = 0; i < count * parts; ++i) {
    const auto value =
        static_cast<float>(compare::ElementAt(data, stored.dtype, i / parts, i % parts == 1));
    std::memcpy(out.bytes.data() + i * sizeof value, &value, sizeof value);
  }
  return out;
}

// Every name that a row has already, in reports of either face and in --json.
std::unordered_set<std::string> TakenNames() {
  std::unordered_set<std::string> out = {"step", "rank", "row", "entry", "state", "verdict"};
  for (const compare::Mode mode :
       {compare::Mode::kTensor, compare::Mode::kStatistics, compare::Mode::kMd5}) {
    for (const compare::Face face : {compare::Face::kOld, compare::Face::kNew}) {
      for (std::string& name : CompareColumns(mode, face, true, nullptr, true))
        out.insert(std::move(name));
    }
  }
  return out;
}

std::vector<UserCell> CellsOf(UserMetrics& metrics, const compare::Input& input,
                              const compare::Row& row) {
  constexpr std::string_view kFolder = "dump_tensor_data";
  Result<UserTensor> target =
      ReadTensor(JoinPath(DirName(input.target_json), kFolder), input.target_files, *row.target);
  if (!target.ok()) {
    return {metrics.columns.size(), UserCell{0, "error: file", target.error().ToString()}};
  }
  Result<UserTensor> golden =
      ReadTensor(JoinPath(DirName(input.golden_json), kFolder), input.golden_files, *row.golden);
  if (!golden.ok()) {
    return {metrics.columns.size(), UserCell{0, "error: file", golden.error().ToString()}};
  }
  const std::lock_guard lock(metrics.mutex);
  return metrics.call(*target, *golden);
}

}  // namespace

Status CheckUserColumns(const std::vector<std::string>& names) {
  constexpr size_t kLongest = 64;
  std::unordered_set<std::string> taken = TakenNames();
  for (const std::string& name : names) {
    std::string_view fault;
    if (name.empty() || name.size() > kLongest) {
      fault = "has no characters, or more than 64 bytes";
    } else if (std::any_of(name.begin(), name.end(),
                           [](unsigned char c) { return c < 0x20 || c == 0x7f; })) {
      fault = "has control characters";
    } else if (std::string_view("=+-@%; ").find(name.front()) != std::string_view::npos) {
      fault = "starts as a formula of a spreadsheet does";
    } else if (!taken.insert(name).second) {
      fault = "is the name of another column";
    }
    if (fault.empty()) continue;
    return Error(ErrorCode::kConfig,
                 fmt::format("the column name {} {}", PyStringRepr(name), fault))
        .At("--metrics")
        .Hint("let column_name() return another one");
  }
  return {};
}

Result<UserColumns> RunUserMetrics(UserMetrics& metrics, const compare::Input& input,
                                   const Comparison& comparison, LogSink& log,
                                   const CancelToken* cancel) {
  UserColumns out;
  if (comparison.mode != compare::Mode::kTensor) {
    log.Warning("--metrics: these dumps hold no tensors, no column is added");
    return out;
  }
  out.names = metrics.columns;
  out.rows.resize(comparison.rows.size());
  std::vector<bool> warned(out.names.size());
  for (size_t i = 0; i < comparison.rows.size(); ++i) {
    const compare::Row& row = comparison.rows[i];
    if (row.gate != Gate::kCompared && row.gate != Gate::kZeroDim) continue;
    if (row.target == nullptr || row.golden == nullptr) continue;
    if (cancel != nullptr && cancel->cancelled()) {
      return Error(ErrorCode::kCancelled, "interrupted in metrics of --metrics");
    }
    out.rows[i] = CellsOf(metrics, input, row);
    out.rows[i].resize(out.names.size(), UserCell{0, "error: missing", "gave nothing"});
    for (size_t k = 0; k < warned.size(); ++k) {
      const UserCell& cell = out.rows[i][k];
      if (cell.problem.empty() || warned[k]) continue;
      warned[k] = true;
      log.Warning(fmt::format("metric {}: {}; first in row {}", out.names[k], cell.problem,
                              row.target->name));
    }
  }
  return out;
}

}  // namespace msprobe::app
