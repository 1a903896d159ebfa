// `msprobe init`: a commented config.json for a purpose.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace msprobe::app {

struct Purpose {
  std::string_view name;     // "first-difference"
  std::string_view summary;  // what it is for, one line
  std::string_view text;     // the file, with {0} where the JSON text of dump_path stands
  std::string_view next;     // what to do with it, for the terminal; {0}: the file's name
};
std::span<const Purpose> Purposes();

struct InitOptions {
  std::string purpose;  // a name of Purposes()
  std::string output = "config.json";
  std::string dump_path = "./dump";
  bool force = false;  // an existing file may be replaced
};

// Writes the file whole or not at all and returns what to do next, some lines. Errors:
// kInvalidArgument (an existing file without force, a name that does not end in .json, an empty
// dump_path), those of AtomicFile.
Result<std::string> Init(const InitOptions& options);

}  // namespace msprobe::app
