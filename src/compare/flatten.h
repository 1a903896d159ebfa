// Entries of a dump to leaves (compare.md 4).
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "compare/store.h"
#include "json/json.h"

namespace msprobe::compare {

// Reads `path` into `side`. Errors: those of dump::ReadDump.
Status ReadSide(const std::string& path, Side& side);

// The row name that a file name gives: without its last extension.
std::string_view WithoutExtension(std::string_view data_name);

}  // namespace msprobe::compare
