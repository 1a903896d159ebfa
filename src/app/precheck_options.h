// The options of a replay, checked, on their way to the host that has PyTorch.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "precheck/details.h"
#include "precheck/lists.h"

namespace msprobe::app {

struct PrecheckOptions {
  std::string command;
  bool old_face = false, multi = false;
  std::string api_info, out_path = "./", csv_path, config_path;
  bool save_error_data = false, jit_compile = false, filter_api = false;
  std::string device;  // npu, cuda, cpu, auto or empty
  std::vector<int64_t> device_ids;
  int64_t workers = 1, timeout = 0, seed = 1234;  // timeout in seconds, 0 = none
  uint64_t memory_limit = 0;                      // bytes; 0 = this machine's
  precheck::Standard standard = precheck::Standard::kNew;
  precheck::Rules rules = precheck::Rules::kDefault;
  precheck::SmallValues small_values = precheck::SmallValues::kOriginal;
  precheck::NumberFormat format;
  bool fail_on_error = false, fail_on_warning = false, fail_on_skip = false;
  std::string reference = "auto", candidate;
  std::string baseline;   // none, cpu, a details file, or empty: what the spelling has
  std::string rows_path;  // run_overflow_check: where lines of JSON go, or ""
  std::string reproduce;  // the call to write a stand-alone script for, instead of a run
  bool ray = false;       // workers are tasks of Ray
  std::string ray_address;
  bool english = false, retry_skips = false, tf32 = false;
  bool quiet = false, verbose = false, debug = false;
  std::vector<std::pair<std::string, std::string>> echo;
};

// The members as one JSON object; msprobe.precheck.options reads it.
std::string ToJson(const PrecheckOptions& options);

}  // namespace msprobe::app
