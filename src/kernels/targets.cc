#include "kernels/targets.h"

#include <hwy/highway.h>

#include <cstdint>

namespace msprobe::kernels {
namespace {

// One bit per target; Highway gives the better one the lower bit.
std::vector<std::string> Names(uint64_t targets) {
  std::vector<std::string> out;
  for (; targets != 0; targets &= targets - 1) {
    out.emplace_back(hwy::TargetName(static_cast<int64_t>(targets & (~targets + 1))));
  }
  return out;
}

}  // namespace

std::vector<std::string> CompiledTargets() { return Names(static_cast<uint64_t>(HWY_TARGETS)); }

std::vector<std::string> UsableTargets() {
  return Names(static_cast<uint64_t>(HWY_TARGETS) & static_cast<uint64_t>(hwy::SupportedTargets()));
}

}  // namespace msprobe::kernels
