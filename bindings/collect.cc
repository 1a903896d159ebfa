// The running side of collection for python/msprobe/pytorch: configuration, life cycle, and the
// capture submodule.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "bindings/capture/capture.h"
#include "bindings/errors.h"
#include "bindings/module.h"
#include "collect/collector.h"
#include "config/collect_config.h"

namespace msprobe::bindings {
namespace {

namespace nb = nanobind;

// Hands messages to a Python callable (level: int, text: str), at Drain(): never while the core
// logs, which may be a thread of its own, or one that holds a lock that others wait for with the
// global lock of Python in their hands.
class PythonLog final : public LogSink {
 public:
  explicit PythonLog(nb::object callable) : callable_(std::move(callable)) {}

  void Log(LogLevel level, std::string_view message) override {
    const std::lock_guard lock(mutex_);
    kept_.emplace_back(level, message);
  }

  void Drain() {
    std::vector<std::pair<LogLevel, std::string>> kept;
    {
      const std::lock_guard lock(mutex_);
      kept.swap(kept_);
    }
    for (const auto& [level, text] : kept) Deliver(level, text);
  }

 private:
  void Deliver(LogLevel level, std::string_view message) {
    const capture::PendingError hold;
    const capture::Ref text = capture::Ref::Steal(PyUnicode_DecodeUTF8(
        message.data(), static_cast<Py_ssize_t>(message.size()), "backslashreplace"));
    if (text) {
      capture::Ref::Steal(
          PyObject_CallFunction(callable_.ptr(), "iO", static_cast<int>(level), text.get()));
    }
    PyErr_Clear();  // a log that fails stops nothing
  }

  nb::object callable_;
  std::mutex mutex_;
  std::vector<std::pair<LogLevel, std::string>> kept_;
};

// One configured collection. The core object is never freed: hooks in autograd graphs may outlive
// everything else.
class PyCollector {
 public:
  PyCollector(const config::CollectArguments& arguments, nb::object log)
      : log_(new PythonLog(std::move(log))) {
    Result<config::CollectConfig> read = config::ReadCollectConfig(arguments, *log_);
    log_->Drain();
    if (!read) RaiseError(read.error(), "ConfigError");
    config_ = *std::move(read);
    Result<std::unique_ptr<collect::Collector>> made = collect::Collector::Create(config_, *log_);
    if (!made) RaiseError(made.error(), "ConfigError");
    core_ = made->release();
  }

  using Tokens = std::vector<std::pair<std::string, int64_t>>;

  bool Start(std::optional<int64_t> rank, std::optional<Tokens> scheduled_tokens) {
    const Status status = core_->Start({rank, std::move(scheduled_tokens)});
    log_->Drain();
    if (!status) RaiseError(Status(status).error(), "DumpError");
    return core_->recording();
  }
  void BeginRecording(bool unit) {
    core_->SetUnit(unit);
    capture::BeginRecording(unit);
  }
  void EndRecording() { capture::EndRecording(); }
  void Stop() {
    core_->Stop();
    log_->Drain();
  }
  void EndStep() {
    capture::BeforeStepEnds();
    core_->EndStep();
    capture::AfterStepEnded();
    log_->Drain();
  }
  void Close() {
    capture::BeforeStepEnds();
    core_->Close();
    log_->Drain();
  }
  void Attach() { capture::AttachCollector(*core_); }
  void Detach() { capture::DetachCollector(); }
  void TakeOver(PyCollector& before) {
    capture::BeforeStepEnds();
    core_->TakeOver(*before.core_);
    before.log_->Drain();
  }
  void DrainLog() { log_->Drain(); }
  void AfterFork() {
    capture::AfterForkInChild();
    core_->AfterForkInChild();
  }

  std::vector<std::string> Differences(const config::CollectArguments& arguments) const {
    Result<config::CollectConfig> read = config::ReadCollectConfig(arguments, NullLog());
    if (!read) return {read.error().ToString()};
    return config::SettingDifferences(config_, *read);
  }

  collect::Collector& core() { return *core_; }
  const config::CollectConfig& config() const { return config_; }

 private:
  PythonLog* log_;  // outlives us with core_
  config::CollectConfig config_;
  collect::Collector* core_ = nullptr;
};

config::CollectArguments Arguments(std::optional<std::string> config_path,
                                   std::optional<std::string> task,
                                   std::optional<std::string> dump_path,
                                   std::optional<std::string> level,
                                   std::optional<std::string> steps_json,
                                   std::optional<std::string> narrow_path) {
  return {std::move(config_path), std::move(task),       std::move(dump_path),
          std::move(level),       std::move(steps_json), std::move(narrow_path)};
}

using OptionalText = std::optional<std::string>;

void DefineLifeCycle(nb::class_<PyCollector>& c) {
  c.def("start", &PyCollector::Start, nb::arg("rank").none(),
        nb::arg("scheduled_tokens") = nb::none(),
        "Opens the current step; whether this step and rank are recorded.")
      .def("begin_recording", &PyCollector::BeginRecording, nb::arg("unit") = false,
           "Hooks record from now on; unit: only module hooks, whatever the level.")
      .def(
          "set_unit", [](PyCollector& self, bool on) { self.core().SetUnit(on); }, nb::arg("on"),
          "Whether modules are wanted whatever the level says.")
      .def("end_recording", &PyCollector::EndRecording,
           "Hooks fall silent; open entries are written.")
      .def("stop", &PyCollector::Stop, "Flushes; counters go on.")
      .def("end_step", &PyCollector::EndStep, "Finishes the files of the step.")
      .def("close", &PyCollector::Close, "Finishes whatever is open.")
      .def("attach", &PyCollector::Attach, "Makes this the collection that hooks report to.")
      .def(
          "set_state",
          [](PyCollector& self, std::string json) { self.core().SetState(std::move(json)); },
          nb::arg("json"), "The state of the program when the step began, for the closing block.")
      .def("detach", &PyCollector::Detach, "Hooks report to nobody.")
      .def("take_over", &PyCollector::TakeOver, nb::arg("before"),
           "Goes on where another collection of this process stands, which ends.")
      .def("drain_log", &PyCollector::DrainLog, "Hands on the messages that wait.")
      .def("after_fork", &PyCollector::AfterFork,
           "In a forked child: forgets everything, writes nothing.")
      .def(
          "set_init_step", [](PyCollector& self, int64_t step) { self.core().SetInitStep(step); },
          nb::arg("step"))
      .def(
          "set_environment",
          [](PyCollector& self, std::string torch_version, std::string python_version,
             std::optional<int64_t> world_size) {
            self.core().SetEnvironment(
                {std::move(torch_version), std::move(python_version), world_size});
          },
          nb::arg("torch_version"), nb::arg("python_version"), nb::arg("world_size").none());
}

void DefineProperties(nb::class_<PyCollector>& c) {
  c.def_prop_ro("recording", [](PyCollector& self) { return self.core().recording(); })
      .def_prop_ro("terminated", [](PyCollector& self) { return self.core().terminated(); })
      .def_prop_ro("step", [](PyCollector& self) { return self.core().step(); })
      .def_prop_ro("wants_modules", [](PyCollector& self) { return self.core().wants_modules(); })
      .def_prop_ro("wants_apis", [](PyCollector& self) { return self.core().wants_apis(); })
      .def_prop_ro("wants_parameter_grads",
                   [](PyCollector& self) { return self.core().wants_parameter_grads(); })
      .def_prop_ro("rank_dir", [](PyCollector& self) { return self.core().rank_dir(); })
      .def_prop_ro("written", [](PyCollector& self) { return self.core().counts().written; })
      .def_prop_ro("filtered", [](PyCollector& self) { return self.core().counts().filtered; })
      .def_prop_ro("failed", [](PyCollector& self) { return self.core().counts().failed; })
      .def_prop_ro("level",
                   [](const PyCollector& self) {
                     return std::string(config::LevelName(self.config().level));
                   })
      .def_prop_ro(
          "task",
          [](const PyCollector& self) { return std::string(config::TaskName(self.config().task)); })
      .def_prop_ro("dump_enable", [](const PyCollector& self) { return self.config().dump_enable; })
      .def_prop_ro("added_apis", [](const PyCollector& self) { return self.config().added_apis; })
      .def_prop_ro("custom_op_namespaces",
                   [](const PyCollector& self) { return self.config().custom_op_namespaces; })
      .def_prop_ro("compiled_as_leaf",
                   [](const PyCollector& self) { return self.config().compiled_as_leaf; })
      .def_prop_ro("evidence",
                   [](const PyCollector& self) {
                     return std::string(config::EvidenceName(self.config().evidence));
                   })
      .def_prop_ro("strict", [](const PyCollector& self) { return self.config().strict; });
}

}  // namespace

void RegisterCollect(nb::module_& m) {
  // The debugger of a process lives until it ends, and with it types and functions of ours: told of
  // in tests only.
  nb::set_leak_warnings(std::getenv("MSPROBE_LEAK_WARNINGS") != nullptr);
  nb::class_<PyCollector> c(m, "Collector", "One configured collection (used by msprobe.pytorch).");
  c.def(
      "__init__",
      [](PyCollector* self, OptionalText config_path, OptionalText task, OptionalText dump_path,
         OptionalText level, OptionalText steps_json, nb::object log, OptionalText narrow_path) {
        new (self)
            PyCollector(Arguments(std::move(config_path), std::move(task), std::move(dump_path),
                                  std::move(level), std::move(steps_json), std::move(narrow_path)),
                        std::move(log));
      },
      nb::arg("config_path").none(), nb::arg("task").none(), nb::arg("dump_path").none(),
      nb::arg("level").none(), nb::arg("steps_json").none(), nb::arg("log"),
      nb::arg("narrow_path") = nb::none());
  c.def(
      "differences",
      [](const PyCollector& self, OptionalText config_path, OptionalText task,
         OptionalText dump_path, OptionalText level, OptionalText steps_json,
         OptionalText narrow_path) {
        return self.Differences(Arguments(std::move(config_path), std::move(task),
                                          std::move(dump_path), std::move(level),
                                          std::move(steps_json), std::move(narrow_path)));
      },
      nb::arg("config_path").none(), nb::arg("task").none(), nb::arg("dump_path").none(),
      nb::arg("level").none(), nb::arg("steps_json").none(), nb::arg("narrow_path") = nb::none(),
      "What another construction with these arguments would change, as text.");
  DefineLifeCycle(c);
  DefineProperties(c);
  c.def(
       "register_module",
       [](PyCollector& self, std::string path, std::string class_name) {
         return self.core().RegisterModule(std::move(path), std::move(class_name));
       },
       nb::arg("path"), nb::arg("class_name"),
       "The number of a module; the same pair gives the same number.")
      .def(
          "enter_phase",
          [](PyCollector& self, const std::string& name) { self.core().EnterPhase(name); },
          nb::arg("name"))
      .def("leave_phase", [](PyCollector& self) { self.core().LeavePhase(); });
  if (!capture::AddCaptureModule(m.ptr())) throw nb::python_error();
}

}  // namespace msprobe::bindings
