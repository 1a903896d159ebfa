// An earlier dump with checksums that entries are compared with while they are collected (dump.md
// 19.2).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "json/json.h"

namespace msprobe::collect {

// The tensor leaves of one entry, by part and position ("input_args.0", "output.values"); `text` is
// checksum and shape.
struct EntryChecksums {
  std::vector<std::pair<std::string, std::string>> inputs, outputs;
};

// Of the value of an entry. Leaves in lists, keywords and dictionaries count too; parameters do
// not.
EntryChecksums ChecksumsOf(const json::Value& entry);

class Reference {
 public:
  // Reads `{bench_path}/step{step}/{rank_name}`; when the rank is unknown (rank_name "rank"), the
  // only rank folder there is. Errors: kNotFound; kMismatch when several could be meant, or when
  // the dump holds no checksums; those of reading the file.
  static Result<Reference> Open(const std::string& bench_path, int64_t step,
                                const std::string& rank_name);

  enum class Answer : uint8_t {
    kUnknown,    // the reference has no such entry, or one of another structure
    kEqual,      // all inputs and outputs are those of the reference
    kInputs,     // inputs differ: the cause is earlier
    kDifferent,  // all inputs are equal, an output of the same shape is not
  };
  // `where`: the first output that differs.
  Answer Compare(std::string_view name, std::string_view entry_json, std::string* where) const;

 private:
  std::unordered_map<std::string, EntryChecksums> entries_;
};

}  // namespace msprobe::collect
