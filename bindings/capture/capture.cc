#include "bindings/capture/capture.h"

#include <cstdio>

#include "bindings/capture/api.h"
#include "bindings/capture/device.h"
#include "bindings/capture/evidence.h"
#include "bindings/capture/mode.h"
#include "bindings/capture/modules.h"
#include "bindings/capture/recompute.h"
#include "bindings/capture/save.h"
#include "bindings/capture/stack.h"
#include "bindings/capture/state.h"

namespace msprobe::capture {
namespace {

const ApiEntry* EntryOf(PyObject* capsule) {
  return static_cast<const ApiEntry*>(PyCapsule_GetPointer(capsule, kEntryCapsule));
}

// init(objects: dict) -> has the exchange table: bool
PyObject* Init(PyObject*, PyObject* objects) {
  if (!PyDict_Check(objects)) return PyErr_Format(PyExc_TypeError, "init takes a dict");
  if (!InitTorch(objects)) return nullptr;
  return PyBool_FromLong(torch_objects().exchange != nullptr ? 1 : 0);
}

PyObject* SetModeFunction(PyObject*, PyObject* mode) {
  SetMode(mode);
  Py_RETURN_NONE;
}

PyObject* PushModeFunction(PyObject*, PyObject*) {
  const bool pushed = PushMode();
  return PyErr_Occurred() != nullptr ? nullptr : PyBool_FromLong(pushed ? 1 : 0);
}

PyObject* RemoveModeFunction(PyObject*, PyObject*) {
  const bool found = RemoveMode();
  return PyErr_Occurred() != nullptr ? nullptr : PyBool_FromLong(found ? 1 : 0);
}

// add_api(prefix, name, qualified, risk, dropout, collective, input_mask, mask_keyword,
// output_mask) -> entry
PyObject* AddApiFunction(PyObject*, PyObject* args) {
  const char *prefix = nullptr, *name = nullptr, *qualified = nullptr, *keyword = nullptr;
  int risk = 0, dropout = 0, collective = 0;
  unsigned input_mask = 0, output_mask = 0;
  if (PyArg_ParseTuple(args, "sssippIsI", &prefix, &name, &qualified, &risk, &dropout, &collective,
                       &input_mask, &keyword, &output_mask) == 0) {
    return nullptr;
  }
  if (risk < 0 || risk > 2) return PyErr_Format(PyExc_ValueError, "risk is 0, 1 or 2");
  ApiEntry* const entry = AddApi(prefix, name, qualified, static_cast<collect::Risk>(risk));
  entry->dropout = dropout != 0;
  entry->collective = collective != 0;
  entry->mask_keyword = keyword;
  entry->input_mask = {input_mask, entry->mask_keyword};
  entry->output_mask = {output_mask, {}};
  return PyCapsule_New(entry, kEntryCapsule, nullptr);
}

// bind(function, entry)
PyObject* Bind(PyObject*, PyObject* args) {
  PyObject *function = nullptr, *capsule = nullptr;
  if (PyArg_ParseTuple(args, "OO", &function, &capsule) == 0) return nullptr;
  auto* const entry = static_cast<ApiEntry*>(PyCapsule_GetPointer(capsule, kEntryCapsule));
  if (entry == nullptr) return nullptr;
  BindApi(function, entry);
  Py_RETURN_NONE;
}

// add_transparent(function, body_clone)
PyObject* AddTransparentFunction(PyObject*, PyObject* args) {
  PyObject *function = nullptr, *clone = nullptr;
  if (PyArg_ParseTuple(args, "OO", &function, &clone) == 0) return nullptr;
  AddTransparent(function, clone);
  Py_RETURN_NONE;
}

// operator_slot(original, entry or None)
PyObject* OperatorSlotFunction(PyObject*, PyObject* args) {
  PyObject *original = nullptr, *capsule = nullptr;
  if (PyArg_ParseTuple(args, "OO", &original, &capsule) == 0) return nullptr;
  const ApiEntry* const entry = capsule == Py_None ? nullptr : EntryOf(capsule);
  return PyErr_Occurred() != nullptr ? nullptr : NewOperatorSlot(original, entry);
}

// swap_hook(function, body, entry)
PyObject* SwapHookFunction(PyObject*, PyObject* args) {
  PyObject *function = nullptr, *body = nullptr, *capsule = nullptr;
  if (PyArg_ParseTuple(args, "OOO", &function, &body, &capsule) == 0) return nullptr;
  const ApiEntry* const entry = EntryOf(capsule);
  return entry == nullptr ? nullptr : NewSwapHook(function, body, entry);
}

PyObject* AddTrampoline(PyObject*, PyObject* code) {
  AddTrampolineCode(code);
  Py_RETURN_NONE;
}

PyObject* BlindFunction(PyObject*, PyObject* original) { return NewBlind(original); }

PyObject* PreHook(PyObject*, PyObject* module) {
  const unsigned long id = PyLong_AsUnsignedLong(module);
  return PyErr_Occurred() != nullptr ? nullptr : NewPreHook(static_cast<uint32_t>(id));
}

PyObject* PostHook(PyObject*, PyObject* module) {
  const unsigned long id = PyLong_AsUnsignedLong(module);
  return PyErr_Occurred() != nullptr ? nullptr : NewPostHook(static_cast<uint32_t>(id));
}

// parameter_hook(module, name, late=False)
PyObject* ParameterHook(PyObject*, PyObject* args) {
  unsigned id = 0;
  int late = 0;
  PyObject* name = nullptr;
  if (PyArg_ParseTuple(args, "IU|p", &id, &name, &late) == 0) return nullptr;
  return NewParameterHook(id, name, late != 0);
}

PyObject* CollectiveDoneFunction(PyObject*, PyObject* handle) {
  CollectiveDone(handle);
  Py_RETURN_NONE;
}

PyObject* WasEnteredFunction(PyObject*, PyObject* module) {
  const unsigned long id = PyLong_AsUnsignedLong(module);
  if (PyErr_Occurred() != nullptr) return nullptr;
  return PyBool_FromLong(WasEntered(static_cast<uint32_t>(id)) ? 1 : 0);
}

// save(variable, name, rank or None, gradients) -> handles
PyObject* Save(PyObject*, PyObject* args) {
  PyObject *variable = nullptr, *name = nullptr, *rank = nullptr;
  int gradients = 0;
  if (PyArg_ParseTuple(args, "OUOp", &variable, &name, &rank, &gradients) == 0) return nullptr;
  std::optional<int64_t> number;
  if (rank != Py_None) number = PyLong_AsLongLong(rank);
  if (PyErr_Occurred() != nullptr) return nullptr;
  return SaveVariable(variable, name, number, gradients != 0);
}

PyObject* NewRegionFunction(PyObject*, PyObject*) { return NewRegion(); }

PyObject* EnterRegionFunction(PyObject*, PyObject* region) {
  if (!EnterRegion(region)) return nullptr;
  Py_RETURN_NONE;
}

PyObject* LeaveRegionFunction(PyObject*, PyObject*) {
  LeaveRegion();
  Py_RETURN_NONE;
}

PyObject* Hash64Function(PyObject*, PyObject* tensor) {
  const DepthGuard tool(thread_state().tool_depth);
  const Quiet quiet;
  const std::optional<uint64_t> hash = Hash64OfTensor(tensor);
  if (PyErr_Occurred() != nullptr) return nullptr;
  if (!hash.has_value()) Py_RETURN_NONE;
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(*hash));
  return PyUnicode_FromString(text);
}

// report(kind, detail): a failure of the Python side
PyObject* Report(PyObject*, PyObject* args) {
  const char *kind = nullptr, *detail = nullptr;
  if (PyArg_ParseTuple(args, "ss", &kind, &detail) == 0) return nullptr;
  if (session().collector != nullptr) session().collector->ReportFailure(kind, detail);
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"init", Init, METH_O, "Looks up the objects of torch. True: the exchange table is there."},
    {"set_mode", SetModeFunction, METH_O, "The function mode whose handler is ours."},
    {"push_mode", PushModeFunction, METH_NOARGS, "Puts the mode on this thread's stack."},
    {"remove_mode", RemoveModeFunction, METH_NOARGS, "Takes the mode off; whether it was there."},
    {"add_api", AddApiFunction, METH_VARARGS, "Registers a listed name; returns its entry."},
    {"bind", Bind, METH_VARARGS, "Ties a function object to an entry; the first tie stays."},
    {"add_transparent", AddTransparentFunction, METH_VARARGS,
     "A function that runs with the mode on."},
    {"operator_slot", OperatorSlotFunction, METH_VARARGS, "An operator that notes its name."},
    {"swap_hook", SwapHookFunction, METH_VARARGS, "The callable behind a trampoline."},
    {"add_trampoline", AddTrampoline, METH_O, "A code object whose frames are not shown."},
    {"blind", BlindFunction, METH_O, "has_torch_function that does not see our mode."},
    {"pre_hook", PreHook, METH_O, "Forward pre-hook of a module."},
    {"post_hook", PostHook, METH_O, "Forward hook of a module."},
    {"parameter_hook", ParameterHook, METH_VARARGS,
     "Hook after a parameter's gradient was accumulated; late: between stop() and step()."},
    {"collective_done", CollectiveDoneFunction, METH_O, "Somebody waited for this handle."},
    {"was_entered", WasEnteredFunction, METH_O, "Whether a module's hooks saw a forward."},
    {"save", Save, METH_VARARGS, "Level debug: one variable; returns the handles of its hooks."},
    {"new_region", NewRegionFunction, METH_NOARGS, "A checkpointed region."},
    {"enter_region", EnterRegionFunction, METH_O, "The region's function begins."},
    {"leave_region", LeaveRegionFunction, METH_NOARGS, "The region's function has ended."},
    {"hash64", Hash64Function, METH_O,
     "Of a tensor's elements, 16 hex digits; None: not readable."},
    {"report", Report, METH_VARARGS, "Counts and logs a failure of ours."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "msprobe._core.capture",
                          "The C side of capture on PyTorch.",
                          -1,
                          methods,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace

bool AddCaptureModule(PyObject* core) {
  const Ref module = Ref::Steal(PyModule_Create(&definition));
  return module && InitApi() && InitMode(module.get()) && InitModules() && InitModuleBackward() &&
         InitSave() && PyModule_AddObjectRef(core, "capture", module.get()) == 0;
}

void AttachCollector(collect::Collector& collector) {
  Session& s = session();
  ForgetStorages(true);  // the collector before knows them
  s.collector = &collector;
  s.generation += 1;
  s.on = false;
  ForgetEntered();  // the numbers are another collector's
  RegisterApis(collector);
}

void BeginRecording(bool unit) {
  Session& s = session();
  const collect::Collector& c = *s.collector;
  s.apis = c.wants_apis() && !unit;
  s.modules = c.wants_modules() || unit;
  s.backward = c.wants_backward();
  s.stacks = c.wants_stacks();
  s.parameters = c.wants_parameters();
  s.evidence = c.evidence() != config::Evidence::kNone;
  s.memory = s.evidence || c.reuses_statistics();
  s.random = c.evidence() == config::Evidence::kFull;
  s.arguments = c.gradients_by_argument();
  s.device = c.device_statistics() != config::DeviceStatistics::kHost;
  s.device_force = c.device_statistics() == config::DeviceStatistics::kForce;
  s.every = c.wants_every();
  s.on = true;
}

void EndRecording() {
  Session& s = session();
  if (!s.on) return;
  FlushCollectives();
  DropThreadModules();
  FlushDeferred();
  s.on = false;
}

void BeforeStepEnds() {
  if (session().collector == nullptr) return;
  FlushCollectives();
  FlushModuleGradients();
  FlushDeferred();
}

void AfterStepEnded() {
  session().generation += 1;
  ForgetStorages(false);
}

void DetachCollector() {
  Session& s = session();
  s.on = false;
  ForgetStorages(true);
  s.collector = nullptr;
  s.generation += 1;
}

void AfterForkInChild() {
  Session& s = session();
  s.on = false;
  s.generation += 1;
  thread_state().api_depth = 0;
  thread_state().tool_depth = 0;
}

}  // namespace msprobe::capture
