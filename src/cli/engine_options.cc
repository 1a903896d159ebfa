#include "cli/engine_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <charconv>

#include "cli/names.h"

namespace msprobe::cli {
namespace {

class HostEngine final : public app::Engine {
 public:
  HostEngine(const Hooks& hooks, EngineRequest request)
      : hooks_(hooks), request_(std::move(request)) {}
  Status Run(std::span<const app::WorkItem> items, app::ItemSink& sink,
             const CancelToken* cancel) override {
    return hooks_.engine(request_, items, sink, cancel);
  }
  Result<unsigned> Slots() override { return hooks_.slots(request_); }

 private:
  const Hooks& hooks_;
  EngineRequest request_;
};

}  // namespace

void AddEngineOptions(CLI::App& app, EngineArgs& out, const char* group) {
  app.add_option("--engine", out.engine,
                 "local: threads of this machine; ray: a Ray cluster (docs/scale.md)")
      ->type_name("local|ray")
      ->group(group);
  app.add_option(
         "--ray-address", out.ray_address,
         "cluster of --engine ray: host:port or auto; left out:\nRAY_ADDRESS, else a cluster of "
         "this machine alone")
      ->type_name("ADDRESS")
      ->group(group);
  app.add_option("--workers", out.workers,
                 "threads, or Ray tasks at a time; as many as there are cores when left out")
      ->type_name("N")
      ->group(group);
}

EngineChoice CheckEngine(const EngineArgs& args, const Hooks& hooks, std::vector<Error>& problems) {
  EngineChoice out;
  constexpr std::array<std::string_view, 2> kEngines = {"local", "ray"};
  constexpr unsigned kMost = 65535;
  out.ray = args.engine == "ray";
  if (!out.ray && args.engine != "local") {
    problems.push_back(WrongValue("--engine", args.engine, kEngines));
  }
  if (out.ray && !hooks.engine) {
    problems.push_back(
        Error(ErrorCode::kUnsupported, "needs Python, and this executable is without Python")
            .At("--engine ray")
            .Hint("use the msprobe command of the Python package"));
  }
  if (!args.ray_address.empty() && !out.ray) {
    problems.push_back(Error(ErrorCode::kInvalidArgument, "has no effect beside --engine local")
                           .At("--ray-address")
                           .Hint("add --engine ray"));
  }
  if (args.workers.empty()) return out;
  const char* end = args.workers.data() + args.workers.size();
  const auto r = std::from_chars(args.workers.data(), end, out.workers);
  if (r.ec != std::errc() || r.ptr != end || out.workers < 1 || out.workers > kMost) {
    problems.push_back(
        Error(ErrorCode::kInvalidArgument, fmt::format("has no value '{}'", args.workers))
            .At("--workers")
            .Hint(fmt::format("a whole number from 1 to {}", kMost)));
  }
  return out;
}

std::unique_ptr<app::Engine> MakeEngine(const EngineChoice& choice, const EngineArgs& args,
                                        const Hooks& hooks, const EngineCommand& command) {
  if (!choice.ray) return nullptr;
  return std::make_unique<HostEngine>(hooks,
                                      EngineRequest{args.ray_address, choice.workers, command});
}

}  // namespace msprobe::cli
