// Arguments whose content a call does not read.
#pragma once

#include <string_view>

namespace msprobe::dump {

// What stood in a tensor that the call overwrites means nothing: initialisers, receive buffers,
// out=. `api`: the function's own name ("normal_"); `leaf`: the place in the entry ("input.0",
// "input.0.1", "input.out", "kwargs.out").
bool IsOverwritten(std::string_view api, std::string_view leaf);

}  // namespace msprobe::dump
