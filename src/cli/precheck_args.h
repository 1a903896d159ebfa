// Arguments of run_ut, acc_check and their multi forms, of run_overflow_check and of op_generate.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "app/compare_app.h"
#include "base/error.h"
#include "cli/completion.h"
#include "cli/engine_options.h"
#include "cli/terminal.h"

namespace msprobe::cli {

struct PrecheckArgs {
  std::string command;  // "run_ut", "multi_acc_check", …
  app::Face face = app::Face::kNew;
  bool multi = false;
  TerminalFlags terminal;
  std::string api_info, output_dir, csv_path, config_path;
  bool save_error_data = false, jit_compile = false, filter_api = false;
  std::string jit_word;  // value of -j, run_overflow_check only
  std::string device_kind;
  std::vector<std::string> device_ids;
  std::string num_splits = "8";
  std::string standard, rules = "default", small_values = "original", digits, fail_on;
  std::string seed, reference = "auto", candidate, timeout, baseline, reproduce;
  std::string json_path, memory_limit;
  bool no_html = false;  // newer spelling
  bool explain_rules = false, english = false, retry_skips = false, tf32 = false;
  EngineArgs engine;  // multi forms
  std::vector<std::pair<std::string, std::string>> echo;
};

// `arguments` after the command's name; `out` has command, face and multi set. Problems: unknown
// options, missing values.
std::vector<Error> ParsePrecheckArgs(std::span<const std::string> arguments, PrecheckArgs& out);
std::string PrecheckHelp(const PrecheckArgs& args);
std::vector<OptionShape> PrecheckShape(const std::string& command);

}  // namespace msprobe::cli
