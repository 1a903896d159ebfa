// The use case "what is in this dump or tensor file".
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace msprobe::app {

struct InspectOptions {
  std::string path;    // dump.json, debug.json, a rank, step or root folder, or a tensor file
  std::string entry;   // name, beginning of names, or a pattern with * and ?; "" = all
  uint64_t most = 20;  // entries or ranks that are listed; 0 = all
  bool tree = false;   // modules instead of a list
};

// One tensor or value of an entry.
struct InspectLeaf {
  std::string name;  // behind the entry's: "input.0"
  std::string dtype, shape, max, min, mean, norm, checksum, file;
};

struct InspectEntry {
  std::string name;
  std::vector<InspectLeaf> leaves;
  std::vector<std::string> stack;
  std::string module;  // branches of the tree, joined with '\x1f'
};

struct InspectDump {
  std::string path, step, rank;
  std::string task, level, framework;
  uint64_t entries = 0, leaves = 0, files = 0;  // files: named by leaves
  uint64_t missing_files = 0;                   // of those, not there
  bool complete = false;                        // the writer said so at its end
  std::string torn;                             // where and why it ends early; "" = it does not
  uint64_t recovered = 0;                       // entries that came from the journal
  std::string problem;                          // it cannot be read at all
  std::vector<InspectEntry> matching;     // in file order, all that InspectOptions::entry takes
  std::map<std::string, uint64_t> kinds;  // forward, backward, …: entries
};

struct InspectRun {
  std::vector<InspectDump> dumps;  // one, or all of a folder (without their entries)
  // A tensor file: names and figures.
  std::vector<std::pair<std::string, std::string>> tensor;
};

// Errors: those of reading a single file; kNotFound when nothing matches (with the nearest name) or
// a folder holds no dump.
Result<InspectRun> Inspect(const InspectOptions& options);

std::string InspectText(const InspectOptions& options, const InspectRun& run);
std::string InspectJson(const InspectOptions& options, const InspectRun& run);
std::string InspectClosingLine(const InspectRun& run);

// `*` stands for any number of characters, `?` for one; everything else for itself.
bool MatchesPattern(std::string_view text, std::string_view pattern);

}  // namespace msprobe::app
