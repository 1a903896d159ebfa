// The command line. One entry point, used by the native executable and, through _core, by the
// wheel's console script.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "app/engine.h"
#include "app/user_metrics.h"
#include "base/log.h"
#include "base/result.h"

namespace msprobe::cli {

// A command as a worker of an engine is told it.
struct EngineCommand {
  bool old_face = false;
  std::string name;
  std::vector<std::string> arguments;  // behind the name
};

struct EngineRequest {
  std::string address;   // of the cluster; "" = the host's own choice
  unsigned workers = 0;  // items at a time; 0: as many as there are places
  EngineCommand command;
};

// Commands that need PyTorch are run by the host, when it is Python.
struct Hooks {
  // run_ut, acc_check and their multi forms: checked options as JSON text in, exit status out.
  std::function<int(const std::string& options)> precheck;
  // doctor: checked options as JSON text in, exit status out.
  std::function<int(const std::string& options)> doctor;
  // compare: replays of recorded calls for the search of the culprit; ends with kCancelled when
  // `cancel` is set. Must not throw.
  std::function<Result<std::string>(const std::string& jobs, const CancelToken& cancel)> replay;
  // compare --metrics: the functions of a folder. Must not throw.
  std::function<Result<std::shared_ptr<app::UserMetrics>>(const std::string& folder)> metrics;
  // --engine ray: runs work items elsewhere (app/engine.h), and says how many at a time. Neither
  // may throw.
  std::function<Status(const EngineRequest& request, std::span<const app::WorkItem> items,
                       app::ItemSink& sink, const CancelToken* cancel)>
      engine;
  std::function<Result<unsigned>(const EngineRequest& request)> slots;
};

// argv[0] is the program's name. Returns the exit status (architecture.md 5): 0 done, 1 failed or
// partial, 2 refused before any work, 3 --fail-on reached, 130/143 interrupted by SIGINT/SIGTERM.
// Answers go to stdout, messages and the closing line to stderr. While it runs it owns the handlers
// of SIGINT and SIGTERM and restores them. Not reentrant. Never throws.
int Main(const std::vector<std::string>& argv, const Hooks& hooks = {});

}  // namespace msprobe::cli
