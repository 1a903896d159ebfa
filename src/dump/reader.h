// Reading dump.json / debug.json, stack.json, construct.json and the folder layout, of every
// generation.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "json/json.h"

namespace msprobe::dump {

struct Header {
  std::string task, level, framework;  // empty when absent
  std::optional<std::string> dump_data_dir;
  bool has_data = false;                  // `data` is present and an object
  std::optional<int64_t> format_version;  // of our "msprobe" object
  std::optional<bool> complete;           // same
};

struct ReadInfo {
  Header header;
  uint64_t entries = 0;
  bool torn = false;             // ended early; entries before the tear were delivered
  std::optional<Error> tear;     // where and why
  uint64_t journal_entries = 0;  // of those, from the journal
};

// Calls `entry` for each complete member of `data`, in file order (duplicates included: a later one
// of the same name replaces the earlier, and it is for the caller to do so). The value is valid
// during the call. Return false to stop. A torn file is not an error once at least one entry is
// complete (decisions.md 28). Top level that is no object: kMalformed.
using EntryFn = std::function<bool(std::string_view name, const json::Value& value)>;
Result<ReadInfo> ReadDump(const std::string& path, const EntryFn& entry);

// stack.json, both shapes (compare.md 3.1). Malformed items are skipped and counted.
struct StackTable {
  std::vector<std::vector<std::string>> stacks;
  std::unordered_map<std::string, uint32_t> of_entry;  // entry name -> index in stacks
  uint64_t skipped = 0;
  const std::vector<std::string>* Find(const std::string& entry) const;
};
Result<StackTable> ReadStack(const std::string& path);

// construct.json: child -> parent ("" for null; Megatron's [parent, micro step]: the parent).
Result<std::unordered_map<std::string, std::string>> ReadConstruct(const std::string& path);

struct RankDir {
  enum class Kind : uint8_t { kRank, kPlain, kProcess };  // rank3, rank, proc123
  std::string name, path;
  Kind kind = Kind::kRank;
  int64_t number = 0;  // 3; 0; 123
};
// Children named rank, rank<n> (no leading zeros) or proc<digits>, sorted: rank first, then by
// number, then proc.
Result<std::vector<RankDir>> ListRanks(const std::string& step_dir);
struct StepDir {
  std::string name, path;
  int64_t number = 0;
};
Result<std::vector<StepDir>> ListSteps(const std::string& root);  // children step<n>, by number

}  // namespace msprobe::dump
