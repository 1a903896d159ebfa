// Which instruction sets the vector code has, for people who report figures.
#pragma once

#include <string>
#include <vector>

namespace msprobe::kernels {

// Highway's names, e.g. "AVX3", "AVX2", "SSE4", best first.
std::vector<std::string> CompiledTargets();
// Those of them that this CPU runs; the kernels take the first.
std::vector<std::string> UsableTargets();

}  // namespace msprobe::kernels
