// Arguments of `msprobe api_precision_compare` in both spellings.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "app/compare_app.h"
#include "base/error.h"
#include "cli/completion.h"
#include "cli/terminal.h"

namespace msprobe::cli {

struct PrecisionArgs {
  app::Face face = app::Face::kNew;
  TerminalFlags terminal;
  std::string npu_csv, gpu_csv;
  std::string output_dir, json_path;
  std::string standard;  // "" = the spelling's own
  std::string rules = "default";
  std::string digits;
  std::string fail_on;
  bool explain_rules = false, english = false;
  std::vector<std::pair<std::string, std::string>> echo;
};

// `arguments` after the command's name. Problems: unknown options, missing values; empty when all
// is well.
std::vector<Error> ParsePrecisionArgs(std::span<const std::string> arguments, app::Face face,
                                      PrecisionArgs& out);
std::string PrecisionHelp(app::Face face);
std::vector<OptionShape> PrecisionShape();

}  // namespace msprobe::cli
