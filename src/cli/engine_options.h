// --engine, --ray-address and --workers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/engine.h"
#include "base/error.h"
#include "cli/main.h"

namespace CLI {
class App;
}

namespace msprobe::cli {

struct EngineArgs {
  std::string engine = "local", ray_address, workers;
  std::string block_mib = "256";  // compare only
};

void AddEngineOptions(CLI::App& app, EngineArgs& out, const char* group);

// What is wrong with them is added to `problems`.
struct EngineChoice {
  bool ray = false;
  unsigned workers = 0;  // 0: as many as there are places
};
EngineChoice CheckEngine(const EngineArgs& args, const Hooks& hooks, std::vector<Error>& problems);

// The engine of the host of this program; null for the local one, which is the program's own
// threads. `arguments` are those after the command's name.
std::unique_ptr<app::Engine> MakeEngine(const EngineChoice& choice, const EngineArgs& args,
                                        const Hooks& hooks, const EngineCommand& command);

}  // namespace msprobe::cli
