// NaN and infinity in one dump: which entries brought them in (clean inputs, bad output) and which
// only passed them on (compare.md 21).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "compare/communication.h"
#include "json/json.h"

namespace msprobe::compare {

struct OverflowEntry {
  std::string name;
  bool bad_input = false, bad_output = false;
  bool communication = false;
  CommArguments comm;
  std::string reason;  // bad entries: "output.0 has Max inf"
  // What was recorded of it, as a JSON object: of entries with clean inputs and a bad output.
  std::string data_info;

  bool IsSource() const { return bad_output && !bad_input; }
};

struct OverflowRank {
  std::string framework;               // "" when not recorded
  std::vector<OverflowEntry> entries;  // order of the file; only bad ones and communication calls
  uint64_t total = 0;                  // entries of the file
  bool torn = false;                   // the file ends early
};

// Max or Min is NaN or infinite, as number or text, in any leaf at any depth (D32). What
// torch.empty and torch.fill leave behind is never a source. Errors: those of dump::ReadDump.
Result<OverflowRank> ReadOverflow(const std::string& dump_json);

}  // namespace msprobe::compare
