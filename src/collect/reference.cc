#include "collect/reference.h"

#include <fmt/format.h>

#include "base/file.h"
#include "dump/reader.h"

namespace msprobe::collect {
namespace {

using Leaves = std::vector<std::pair<std::string, std::string>>;

// "md5" and shape of a tensor leaf; empty for everything else.
std::string LeafText(const json::Value& value) {
  const json::Value* type = value.Find("type");
  const json::Value* shape = value.Find("shape");
  const json::Value* md5 = value.Find("md5");
  if (type == nullptr || !type->is_string() || shape == nullptr || !shape->is_array() ||
      md5 == nullptr || !md5->is_string())
    return {};
  std::string text(md5->as_string());
  for (const json::Value& extent : *shape)
    text += fmt::format(" {}", extent.is_int() ? extent.as_int() : -1);
  return text;
}

void Walk(const json::Value& value, const std::string& path, Leaves& out) {
  if (value.is_array()) {
    for (size_t k = 0; k < value.size(); ++k) Walk(value[k], fmt::format("{}.{}", path, k), out);
  } else if (value.is_object()) {
    std::string text = LeafText(value);
    if (!text.empty()) return out.emplace_back(path, std::move(text)), void();
    for (const auto* member = value.members_begin(); member != value.members_end(); ++member)
      Walk(member->value, fmt::format("{}.{}", path, member->key), out);
  }
}

std::string_view ShapeOf(std::string_view text) { return text.substr(text.find(' ') + 1); }

}  // namespace

EntryChecksums ChecksumsOf(const json::Value& entry) {
  EntryChecksums found;
  for (const char* part : {"input_args", "input_kwargs", "input"})
    if (const json::Value* value = entry.Find(part)) Walk(*value, part, found.inputs);
  if (const json::Value* value = entry.Find("output")) Walk(*value, "output", found.outputs);
  return found;
}

Result<Reference> Reference::Open(const std::string& bench_path, int64_t step,
                                  const std::string& rank_name) {
  const std::string step_path = JoinPath(bench_path, fmt::format("step{}", step));
  std::string folder = JoinPath(step_path, rank_name);
  if (rank_name == "rank" && !IsDirectory(folder)) {
    MSPROBE_ASSIGN(const auto ranks, dump::ListRanks(step_path));
    if (ranks.size() > 1) {
      return Error(ErrorCode::kMismatch,
                   fmt::format("holds {} rank folders, and the rank of this process is unknown",
                               ranks.size()))
          .At(step_path)
          .Key("bench_path");
    }
    if (ranks.size() == 1) folder = ranks[0].path;
  }
  Reference reference;
  size_t checksums = 0;
  const std::string path = JoinPath(folder, "dump.json");
  MSPROBE_ASSIGN(const auto info,
                 dump::ReadDump(path, [&](std::string_view name, const json::Value& value) {
                   EntryChecksums found = ChecksumsOf(value);
                   checksums += found.inputs.size() + found.outputs.size();
                   reference.entries_.insert_or_assign(std::string(name), std::move(found));
                   return true;
                 }));
  if (checksums == 0) {
    return Error(ErrorCode::kMismatch,
                 fmt::format("none of its {} entries has a checksum", info.entries))
        .At(path)
        .Key("bench_path")
        .Hint("expected a dump with summary_mode \"md5\"");
  }
  return reference;
}

Reference::Answer Reference::Compare(std::string_view name, std::string_view entry_json,
                                     std::string* where) const {
  const auto it = entries_.find(std::string(name));
  const auto document = json::ParseDocument(entry_json);
  if (it == entries_.end() || !document.ok()) return Answer::kUnknown;
  const EntryChecksums ours = ChecksumsOf(document->root());
  const EntryChecksums& theirs = it->second;
  if (ours.inputs != theirs.inputs) return Answer::kInputs;
  if (ours.outputs.size() != theirs.outputs.size()) return Answer::kUnknown;
  for (size_t k = 0; k < ours.outputs.size(); ++k) {
    const auto& [path, text] = ours.outputs[k];
    const auto& [their_path, their_text] = theirs.outputs[k];
    if (path == their_path && text == their_text) continue;
    if (path != their_path || ShapeOf(text) != ShapeOf(their_text)) return Answer::kUnknown;
    *where = path;
    return Answer::kDifferent;
  }
  return Answer::kEqual;
}

}  // namespace msprobe::collect
