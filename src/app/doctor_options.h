// The options of `msprobe doctor`, on their way to the host that has Python.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace msprobe::app {

struct DoctorOptions {
  std::string config_path;               // a config.json, or ""
  std::string script;                    // a script to try, or ""
  std::vector<std::string> script_args;  // its arguments
  std::string model;                     // MODULE:FACTORY, or ""
  int64_t steps = 0;  // how many steps will be recorded; 0: what the file says, else 1
  int64_t ranks = 1;
  int64_t timeout = 600;  // seconds for one trial
  bool json = false, quiet = false, debug = false;
};

// The members as one JSON object, with what the program was built from under "build";
// msprobe.doctor reads it.
std::string ToJson(const DoctorOptions& options);

}  // namespace msprobe::app
