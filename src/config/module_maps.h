// The YAML files of -am and -lm (compare.md 5.7, 22).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/result.h"

namespace msprobe::config {

// Which argument of the target stands against which of the golden side: numbers or names, the two
// lists of one length.
struct PlaceMap {
  std::vector<std::string> target, golden;
};

// One function of two frameworks. Names are without call number and direction (`Mint.add`), or the
// class of a module alone (`LayerNorm`). A list that is absent leaves its places as they are.
struct ApiPair {
  std::string target, golden;  // ms_api, pt_api
  std::optional<PlaceMap> arguments, outputs, parameters, gradients;
};
using ApiMap = std::vector<ApiPair>;

// A list of objects {ms_api, pt_api, ms_args, pt_args, ms_outputs, pt_outputs, ms_parameters,
// pt_parameters, ms_parameters_grad, pt_parameters_grad}. Errors with line, column and key: names
// that are missing or given twice, lists without their twin or of another length, repeated places.
// Unknown keys are warned about, or refused when they are nearly a known one.
Result<ApiMap> ReadApiMapYaml(const std::string& path, LogSink& log);

// Names of the children of modules of one class, on both sides. A target name may have dots: it
// skips levels.
struct LayerRules {
  std::string type;  // class of the parent on the target side; "TopLayer" of the root
  std::vector<std::pair<std::string, std::string>> names;  // longest target name first
};
using LayerMap = std::vector<LayerRules>;

// `TypeName: {target_name: golden_name}`; `Cell` is an older word for `TopLayer`, and `(` with what
// follows is cut off a golden name. Errors with line, column and key.
Result<LayerMap> ReadLayerMapYaml(const std::string& path);

}  // namespace msprobe::config
