#include "compare/valid_tail.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/file.h"
#include "compare/pair_reader.h"
#include "dump/reader.h"
#include "formats/tensor_file.h"

namespace msprobe::compare {
namespace {

using config::ValidLength;
using json::Value;

constexpr uint64_t kMaxBytes = 4ull << 30;

// Does the file hold one of the names? Blocks overlap by the longest name.
Result<bool> Mentions(const std::string& path, const std::vector<ValidLength>& rules) {
  constexpr size_t kBlock = 4 << 20;
  MSPROBE_ASSIGN(const InputFile file, InputFile::Open(path));
  size_t overlap = 1;
  for (const ValidLength& rule : rules) overlap = std::max(overlap, rule.api.size());
  std::string block;
  for (uint64_t at = 0; at < file.size(); at += kBlock) {
    block.resize(static_cast<size_t>(std::min<uint64_t>(kBlock + overlap, file.size() - at)));
    MSPROBE_TRY(file.ReadAt(at, std::as_writable_bytes(std::span(block))));
    for (const ValidLength& rule : rules) {
      if (block.find(rule.api) != std::string::npos) return true;
    }
  }
  return false;
}

std::optional<std::string> DataName(const Value& leaf) {
  const Value* name = leaf.Find("data_name");
  if (name == nullptr || !name->is_string()) return std::nullopt;
  return std::string(name->as_string());
}

// File names of all leaves in `value`.
void CollectNames(const Value& value, std::vector<std::string>& out, int depth = 0) {
  constexpr int kMaxDepth = 1000;
  if (depth > kMaxDepth) return;
  if (value.is_array()) {
    for (const Value& item : value) CollectNames(item, out, depth + 1);
  } else if (value.is_object()) {
    if (auto name = DataName(value)) {
      out.push_back(std::move(*name));
      return;
    }
    for (auto m = value.members_begin(); m != value.members_end(); ++m) {
      CollectNames(m->value, out, depth + 1);
    }
  }
}

struct Found {
  std::string entry, length_file;
  std::vector<std::string> outputs;
};

Result<std::vector<Found>> FindEntries(const std::string& dump_json,
                                       const std::vector<ValidLength>& rules) {
  std::vector<Found> out;
  const auto look = [&](std::string_view name, const Value& entry) {
    for (const ValidLength& rule : rules) {
      if (name.find(rule.api) == std::string_view::npos) continue;
      const Value* kwargs = entry.Find("input_kwargs");
      const Value* length = kwargs == nullptr ? nullptr : kwargs->Find(rule.keyword);
      const std::optional<std::string> file = length == nullptr ? std::nullopt : DataName(*length);
      const Value* output = entry.Find("output");
      if (!file || output == nullptr) continue;
      Found found{std::string(name), *file, {}};
      CollectNames(*output, found.outputs);
      out.push_back(std::move(found));
      break;
    }
    return true;
  };
  MSPROBE_ASSIGN([[maybe_unused]] const dump::ReadInfo info, dump::ReadDump(dump_json, look));
  return out;
}

struct Loaded {
  formats::StoredTensor tensor;
  std::vector<std::byte> bytes;
};

Result<Loaded> Load(const std::string& folder, const std::string& name) {
  MSPROBE_ASSIGN(const std::string path, ResolveInside(folder, name));
  MSPROBE_ASSIGN(const formats::TensorFile file, formats::TensorFile::Open(path));
  Loaded out;
  MSPROBE_ASSIGN(out.tensor, formats::SingleTensor(file));
  const uint64_t n = static_cast<uint64_t>(out.tensor.num_elements);
  if (n > kMaxBytes / ItemSize(out.tensor.dtype)) {
    return Error(ErrorCode::kTooLarge, "too large to clear its tail").At(name);
  }
  out.bytes.resize(static_cast<size_t>(n) * ItemSize(out.tensor.dtype));
  MSPROBE_TRY(file.ReadAll(out.tensor, out.bytes.data()));
  return out;
}

Result<int64_t> ReadLength(const std::string& folder, const std::string& name) {
  MSPROBE_ASSIGN(const Loaded length, Load(folder, name));
  if (!IsExact(length.tensor.dtype)) {
    return Error(ErrorCode::kMismatch, "a length is given by integers").At(name);
  }
  // Exact in double below 2^53, and no tensor is longer.
  double sum = 0;
  for (int64_t i = 0; i < length.tensor.num_elements; ++i) {
    sum += ElementAt(length.bytes.data(), length.tensor.dtype, static_cast<size_t>(i), false);
  }
  if (sum < 0 || sum > 9e15) return Error(ErrorCode::kMismatch, "a negative length").At(name);
  return static_cast<int64_t>(sum);
}

Status ClearOne(const std::string& folder, const std::string& name, int64_t valid, FileMap& files,
                const std::function<Result<std::string>()>& new_file) {
  MSPROBE_ASSIGN(Loaded output, Load(folder, name));
  const Shape& shape = output.tensor.shape;
  if (shape.empty() || output.tensor.num_elements == 0 || valid >= shape[0]) return {};
  const size_t row = output.bytes.size() / static_cast<size_t>(shape[0]);
  const size_t begin = static_cast<size_t>(valid) * row;
  std::memset(output.bytes.data() + begin, 0, output.bytes.size() - begin);
  MSPROBE_ASSIGN(std::string path, new_file());
  MSPROBE_TRY(formats::WritePt(path, output.tensor.dtype, shape, false, output.bytes));
  files[name] = std::move(path);
  return {};
}

}  // namespace

Status ClearInvalidTails(const std::string& dump_json, const std::string& tensor_folder,
                         const std::vector<ValidLength>& rules, FileMap& files,
                         const std::function<Result<std::string>()>& new_file, LogSink& log) {
  if (rules.empty() || !IsDirectory(tensor_folder)) return {};
  MSPROBE_ASSIGN(const bool mentioned, Mentions(dump_json, rules));
  if (!mentioned) return {};
  MSPROBE_ASSIGN(const std::vector<Found> entries, FindEntries(dump_json, rules));
  for (const Found& found : entries) {
    const Result<int64_t> valid = ReadLength(tensor_folder, found.length_file);
    if (!valid.ok()) {
      log.Warning(fmt::format("{}: its outputs are compared whole: {}", found.entry,
                              valid.error().ToString()));
      continue;
    }
    for (const std::string& name : found.outputs) {
      const Status done = ClearOne(tensor_folder, name, *valid, files, new_file);
      if (!done.ok()) {
        log.Warning(fmt::format("{}: compared whole: {}", name, done.error().ToString()));
      }
    }
  }
  return {};
}

}  // namespace msprobe::compare
