// Work items for hosts that Python reaches (msprobe.scale): both sides of --engine ray.
#include "bindings/engine.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <functional>
#include <optional>

#include "app/engine.h"
#include "bindings/errors.h"
#include "bindings/module.h"
#include "bindings/user_metrics.h"
#include "cli/items.h"

namespace msprobe::bindings {
namespace {

namespace nb = nanobind;

ErrorCode CodeOf(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(ErrorCode::kInternal); ++i) {
    if (ErrorCodeName(static_cast<ErrorCode>(i)) == name) return static_cast<ErrorCode>(i);
  }
  return ErrorCode::kInternal;
}

// An exception of Python as an Error; those of msprobe.errors keep their cause.
Error ErrorOf(const nb::python_error& e) {
  const nb::handle value = e.value();
  if (nb::hasattr(value, "code") && nb::hasattr(value, "message")) {
    return {CodeOf(nb::cast<std::string>(value.attr("code").attr("value"))),
            nb::cast<std::string>(value.attr("message"))};
  }
  const std::string text = e.what();
  const size_t end = text.rfind('\n');
  return {ErrorCode::kInternal, text.substr(end == std::string::npos ? 0 : end + 1)};
}

nb::dict RequestDict(const cli::EngineRequest& request) {
  nb::dict out;
  out["address"] = request.address;
  out["workers"] = request.workers;
  out["old_face"] = request.command.old_face;
  out["name"] = request.command.name;
  out["arguments"] = request.command.arguments;
  return out;
}

Status RunItems(const cli::EngineRequest& request, std::span<const app::WorkItem> items,
                app::ItemSink& sink, const CancelToken* cancel) {
  const nb::gil_scoped_acquire acquire;
  std::optional<Error> failure;
  // The sink works without the GIL; what it refuses ends the run.
  const auto give = [&](const std::function<Status()>& call) {
    std::optional<Error> error;
    {
      const nb::gil_scoped_release release;
      if (const Status s = call(); !s.ok()) error = s.error();
    }
    if (error && !failure) failure = error;
    return !error;
  };
  try {
    nb::list list;
    for (const app::WorkItem& item : items) {
      list.append(nb::make_tuple(nb::bytes(item.payload.data(), item.payload.size()), item.inputs));
    }
    const nb::object chunk = nb::cpp_function([&](size_t i, nb::bytes b) {
      return give([&] { return sink.Chunk(i, {b.c_str(), b.size()}); });
    });
    const nb::object done =
        nb::cpp_function([&](size_t i) { return give([&] { return sink.Done(i); }); });
    const nb::object failed = nb::cpp_function([&](size_t i, const std::string& reason) {
      return give([&] { return sink.Failed(i, reason); });
    });
    const nb::object cancelled =
        nb::cpp_function([&] { return cancel != nullptr && cancel->cancelled(); });
    nb::module_::import_("msprobe.scale")
        .attr("run_items")(RequestDict(request), list, chunk, done, failed, cancelled);
  } catch (const nb::python_error& e) {
    if (cancel != nullptr && cancel->cancelled())
      return Error(ErrorCode::kCancelled, "interrupted");
    return failure ? *failure : ErrorOf(e);
  }
  if (cancel != nullptr && cancel->cancelled()) return Error(ErrorCode::kCancelled, "interrupted");
  return failure ? Status(*failure) : Status();
}

Result<unsigned> Slots(const cli::EngineRequest& request) {
  const nb::gil_scoped_acquire acquire;
  try {
    return nb::cast<unsigned>(
        nb::module_::import_("msprobe.scale").attr("slots")(RequestDict(request)));
  } catch (const nb::python_error& e) {
    return ErrorOf(e);
  }
}

// In a worker.
void RunItem(const nb::dict& request, nb::bytes payload, const std::vector<nb::bytes>& inputs,
             const std::string& scratch, const nb::object& emit) {
  cli::EngineCommand command;
  command.old_face = nb::cast<bool>(request["old_face"]);
  command.name = nb::cast<std::string>(request["name"]);
  command.arguments = nb::cast<std::vector<std::string>>(request["arguments"]);
  std::vector<std::string> given;
  for (const nb::bytes& b : inputs) given.emplace_back(b.c_str(), b.size());
  app::ItemContext context;
  context.inputs = given;
  context.scratch = scratch;
  context.emit = [&](std::string_view bytes) -> Status {
    const nb::gil_scoped_acquire acquire;
    try {
      emit(nb::bytes(bytes.data(), bytes.size()));
    } catch (const nb::python_error& e) {
      return ErrorOf(e);
    }
    return {};
  };
  std::optional<Error> error;
  {
    const std::string_view bytes(payload.c_str(), payload.size());
    cli::Hooks hooks;
    hooks.replay = &ReplayCalls;
    hooks.metrics = &MetricsOfFolder;
    const nb::gil_scoped_release release;
    if (Status s = cli::RunItem(command, bytes, context, hooks); !s.ok()) error = s.error();
  }
  if (error) RaiseError(*error, "MsprobeError");
}

}  // namespace

void AddEngineHooks(cli::Hooks& hooks) {
  hooks.engine = &RunItems;
  hooks.slots = &Slots;
}

void RegisterEngine(nb::module_& m) {
  m.def("run_item", &RunItem, nb::arg("request"), nb::arg("payload"), nb::arg("inputs"),
        nb::arg("scratch"), nb::arg("emit"),
        nb::sig("def run_item(request: dict[str, Any], payload: bytes, inputs: Sequence[bytes], "
                "scratch: str, emit: object) -> None"),
        "Run one work item of a command and hand out its result in pieces.\n\n"
        "Raises MsprobeError when the command's arguments or the item are wrong here.");
}

}  // namespace msprobe::bindings
