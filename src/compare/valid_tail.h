// Outputs whose elements behind a valid length mean nothing (compare.md 17.1): some fused operators
// leave them as they are in memory.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "compare/compare.h"
#include "config/postprocess_config.h"

namespace msprobe::compare {

// Finds the entries of `dump_json` that `rules` name (the API as part of the entry name), adds up
// the integer tensor in their keyword argument, and puts a copy of each recorded output, with 0
// from that index of dimension 0 on, into a file from `new_file`; `files` gets data_name -> copy.
// Outputs without dimensions or elements stay. What cannot be read is a warning. Dumps that do not
// name such an API are searched as text only.
Status ClearInvalidTails(const std::string& dump_json, const std::string& tensor_folder,
                         const std::vector<config::ValidLength>& rules, FileMap& files,
                         const std::function<Result<std::string>()>& new_file, LogSink& log);

}  // namespace msprobe::compare
