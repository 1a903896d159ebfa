// What tensors of a dump are called while dumps of several ranks are joined.
#pragma once

#include <string>

namespace msprobe::app {

// The name of its row. `path`: the entry, a line feed, and the place inside.
std::string RowName(const std::string& path);

// Numbers of calls differ from call to call; what a tensor is does not: the name with `*` for them.
std::string KindOf(const std::string& name);

}  // namespace msprobe::app
