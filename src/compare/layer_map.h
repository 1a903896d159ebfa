// Pairs of entries by their place in the two module trees (-lm, compare.md 22).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "compare/align.h"
#include "compare/store.h"
#include "config/module_maps.h"

namespace msprobe::compare {

// Where an entry stands: `layer1.fc` of a module, the same of the module that calls a function, the
// framework's function in between when user code did not call it itself, and its own name.
struct LayerPlace {
  std::string scope;  // dotted, without the first component; empty: of no known form
  std::string type;   // class of a module, name of a function
  std::string state;  // forward, backward, parameters_grad
};

// Places of all entries of a side. `parents` is construct.json, `stacks` stack.json; both may be
// null.
using Parents = std::unordered_map<std::string, std::string>;
std::vector<LayerPlace> PlacesOf(const Side& side, const Parents* parents,
                                 const dump::StackTable* stacks);

// The target scope under the rules: from the root on, the longest rule of the parent's class
// renames what follows; names without a rule stay. `type_of` gives the class at a target scope.
std::string GoldenScope(const std::string& scope, const config::LayerMap& rules,
                        const std::unordered_map<std::string, std::string>& type_of);

// The golden entry of each target entry, or kNoEntry: same place under the rules, same state, same
// position among the entries there.
std::vector<uint32_t> LayerPartners(const std::vector<LayerPlace>& target,
                                    const std::vector<LayerPlace>& golden,
                                    const config::LayerMap& rules);

// The same from the files beside the two dumps. nullopt, and a note that says why, when a side has
// no construct.json. Errors: those of reading it or stack.json.
Result<std::optional<std::vector<uint32_t>>> ReadLayerPartners(const Side& target,
                                                               const Side& golden,
                                                               const Input& input,
                                                               const config::LayerMap& rules,
                                                               std::vector<std::string>& notes);

}  // namespace msprobe::compare
