// A guard for readers of YAML: quoted scalars that a torn file leaves open.
#pragma once

#include <cstddef>
#include <string_view>

namespace msprobe::config {

// Is the quoted scalar that begins at `begin` closed? yaml-cpp 0.7 accepts one that runs into the
// end of the file behind a line end, and a torn file would then be read with wrong names. True for
// scalars without quotes and for a `begin` beyond the text.
bool IsClosed(std::string_view text, size_t begin);

}  // namespace msprobe::config
