// The file of --layout: how the ranks of two dumps hold the parts of one model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace msprobe::config {

// How the ranks along one dimension of the mesh hold a tensor.
struct Held {
  enum class How : uint8_t {
    kSame,   // each holds it all
    kAxis,   // parts that join along `axis`, in the order of the ranks
    kSum,    // parts that add up
    kGuess,  // not known
  };
  How how = How::kGuess;
  int64_t axis = 0;  // kAxis; negative: from the last one
  bool operator==(const Held&) const = default;
};

struct LayoutRule {
  std::string name;                                // pattern of row names: * and ?
  std::vector<std::pair<std::string, Held>> held;  // by dimension; a missing one is kSame
};

// Sizes of a mesh, the dimension whose neighbours have neighbouring ranks first.
using Mesh = std::vector<std::pair<std::string, int64_t>>;

struct Layout {
  Mesh target, golden;            // the same dimensions, in the order of each side
  std::vector<LayoutRule> rules;  // the first one that matches counts; none: everything is a guess
};

// target: {tp: 4, dp: 2}, golden: {tp: 2, dp: 1}, tensors: a list of {name, tp: axis | same | sum |
// guess, …}. Errors, kConfig, with line, column and key: a side that is missing, sizes that are no
// numbers from 1 to 65536, dimensions that only one side has, other words than those.
Result<Layout> ReadLayout(const std::string& path);

std::string HeldText(const Held& held);  // "0", "same", "sum", "guess"

}  // namespace msprobe::config
