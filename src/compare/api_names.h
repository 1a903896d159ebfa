// Names of a MindSpore target's calls on the PyTorch side (-am, compare.md 5.7).
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "compare/store.h"
#include "config/module_maps.h"

namespace msprobe::compare {

class ApiNames {
 public:
  // With a file: its pairs, by name without number, else by class of a module. `map` null: calls of
  // functions take the golden function of the same name, whatever its prefix, capitals and
  // underscores (`Mint.add` and `Primitive.Add` take `Torch.add`).
  ApiNames(const config::ApiMap* map, const Side& target, const Side& golden);

  // The name of a target entry on the golden side, its own when nothing is said of it, and the pair
  // that says so (null without a file).
  struct Found {
    std::string name;
    const config::ApiPair* pair = nullptr;
  };
  Found Find(std::string_view entry) const;

  // Golden functions that several target functions lead to: their calls pair in order of
  // appearance, because each counts its own.
  bool IsShared(const std::string& golden_base) const { return shared_.contains(golden_base); }

  // Names of the file that no target entry has.
  std::vector<std::string> Unused(const Side& target) const;

 private:
  void LikenByName(const Side& target, const Side& golden);

  std::unordered_map<std::string, Found> by_base_, by_class_;  // Found::name: golden base or class
  std::unordered_set<std::string> shared_;
};

// The row name behind its entry's name (`.input.0`, `.parameters.gamma`, `.gamma` of gradients) on
// the golden side; empty when the pair lists other places only. Gradients of calls keep theirs:
// their positions are those of the recorded gradients, not of arguments.
std::string GoldenPlace(std::string_view place, Direction direction, const config::ApiPair& pair);

}  // namespace msprobe::compare
