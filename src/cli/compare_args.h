// Arguments of `msprobe compare` in both spellings.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/compare_app.h"
#include "base/error.h"
#include "cli/completion.h"
#include "cli/culprit_command.h"
#include "cli/engine_options.h"
#include "cli/terminal.h"

namespace msprobe::cli {

struct CompareArgs {
  app::Face face = app::Face::kNew;
  TerminalFlags terminal;
  std::string input_path;                // old face: compare.json
  std::string target_path, golden_path;  // new face
  std::string output_path = "./output";
  std::string mode = "auto";
  bool xlsx = false, fuzzy = false, row_log = false;
  bool stack_mode = false, compare_only = false, highlight = false;  // old face
  // "" = the flag alone; data_mapping always has a file.
  std::optional<std::string> data_mapping, cell_mapping, api_mapping, layer_mapping;
  std::string rules = "default";
  bool explain_rules = false;
  std::string fail_on;  // words separated by commas
  bool no_html = false, html = false;
  bool culprit = false, no_culprit = false, loss_impact = false;
  CulpritArgs search;
  bool consistent_check = false;
  std::string backend;
  bool diff_analyze = false, resume = false;
  std::string memory_limit;  // bytes, or with K, M, G or T behind
  std::vector<int64_t> ranks, steps;
  std::string layout;   // YAML
  std::string metrics;  // folder of alg_*.py
  std::string config_path, json_path, junit_path;
  EngineArgs engine;
  std::vector<std::pair<std::string, std::string>>
      echo;  // what was given, long names without dashes
};

// `arguments` after the command's name. Problems: unknown options, missing values; empty when all
// is well.
std::vector<Error> ParseCompareArgs(std::span<const std::string> arguments, app::Face face,
                                    CompareArgs& out);
std::string CompareHelp(app::Face face);
std::vector<OptionShape> CompareShape(app::Face face);

}  // namespace msprobe::cli
