#include "bindings/capture/modules.h"

#include <structmember.h>

#include <cstddef>

#include "bindings/capture/describe.h"
#include "bindings/capture/device.h"
#include "bindings/capture/recompute.h"
#include "bindings/capture/stack.h"
#include "bindings/capture/state.h"

namespace msprobe::capture {
namespace {

struct ModuleHook {
  PyObject_HEAD vectorcallfunc call;
  uint32_t module;
  PyObject* parameter;  // of a parameter hook
  uint64_t late;        // the generation of a hook that works after stop(), once, else 0
  bool fired;
};

PyTypeObject hook_type;

// By number of the module; guarded by the global lock.
std::vector<bool>& entered() {
  static auto* const list = new std::vector<bool>;
  return *list;
}

Ref HandledError() {
#if PY_VERSION_HEX >= 0x030B0000
  return Ref::Steal(PyErr_GetHandledException());
#else
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_GetExcInfo(&type, &value, &traceback);
  Ref::Steal(type), Ref::Steal(traceback);
  return Ref::Steal(value);
#endif
}

Ref Buffers(PyObject* module) {
  Ref buffers = Ref::Steal(PyObject_GetAttr(module, torch_objects().s_buffers));
  if (!buffers) ClearError();  // a script module keeps them elsewhere
  return buffers;
}

// (module, args, kwargs) -> None
PyObject* PreHookCall(PyObject* self, PyObject* const* args, size_t nargsf, PyObject*) {
  const auto* hook = reinterpret_cast<ModuleHook*>(self);
  const Session& s = session();
  ThreadState& ts = thread_state();
  if (PyVectorcall_NARGS(nargsf) < 3 || !s.on || !s.modules || ts.tool_depth > 0) Py_RETURN_NONE;
  const DepthGuard tool(ts.tool_depth);
  const Quiet quiet;
  if (hook->module >= entered().size()) entered().resize(hook->module + size_t{1});
  entered()[hook->module] = true;
  auto frame = std::make_unique<ModuleFrame>();
  frame->module = hook->module;
  frame->generation = s.generation;
  frame->handled_error = HandledError();
  frame->call = s.collector->EnterModule(hook->module, CurrentStack(nullptr));
  if (frame->call.described) frame->builder = s.collector->BeginModule(frame->call);
  if (frame->builder != nullptr) {
    Describer describe(*frame->builder);
    describe.Positional(args[1], {});
    describe.Keywords(PyDict_Check(args[2]) ? args[2] : nullptr, {});
    if (s.evidence) {
      NoteAutocast(*frame->builder);
      frame->versions.Add(args[1], false);
      frame->versions.Add(args[2], false);
      frame->versions.Add(Buffers(args[0]).get(), true);
    }
  }
  if (s.backward) {
    const BackwardRegion* parent = ts.modules.empty() ? nullptr : ts.modules.back()->region.get();
    frame->region = BeginRegion(args[1], parent);
  }
  ts.modules.push_back(std::move(frame));
  ClearError();
  Py_RETURN_NONE;
}

// Takes the newest open call of `module` off the stack; calls above it never ended and are written
// as they are.
std::unique_ptr<ModuleFrame> TakeFrame(ThreadState& ts, uint32_t module) {
  size_t at = ts.modules.size();
  while (at > 0 && ts.modules[at - 1]->module != module) --at;
  if (at == 0) return nullptr;
  while (ts.modules.size() > at) {
    CommitEntry(std::move(ts.modules.back()->builder));
    ts.modules.pop_back();
  }
  auto frame = std::move(ts.modules.back());
  ts.modules.pop_back();
  return frame;
}

// `args` as of a forward hook: module, arguments, keywords, output.
void DescribeEnd(ModuleFrame& frame, PyObject* const* args) {
  if (frame.builder == nullptr) return;
  Describer describe(*frame.builder);
  describe.Output(args[3], {});
  if (session().parameters) {
    const Ref parameters = Ref::Steal(PyObject_GetAttr(args[0], torch_objects().s_parameters));
    describe.Parameters(parameters.get());
  }
  const Ref buffers = Buffers(args[0]);
  frame.versions.DescribeMutated(*frame.builder, {args[1], args[2], buffers.get(), args[3]});
  NoteRecompute(*frame.builder);
  CommitEntry(std::move(frame.builder));
}

// (module, args, kwargs, output) -> None
PyObject* PostHookCall(PyObject* self, PyObject* const* args, size_t nargsf, PyObject*) {
  const auto* hook = reinterpret_cast<ModuleHook*>(self);
  const Session& s = session();
  ThreadState& ts = thread_state();
  if (PyVectorcall_NARGS(nargsf) < 4 || ts.tool_depth > 0) Py_RETURN_NONE;
  const DepthGuard tool(ts.tool_depth);
  std::unique_ptr<ModuleFrame> frame = TakeFrame(ts, hook->module);
  if (frame == nullptr) Py_RETURN_NONE;
  if (frame->generation != s.generation) {
    DiscardEntry(std::move(frame->builder));
    Py_RETURN_NONE;
  }
  const Quiet quiet;
  DescribeEnd(*frame, args);
  // A forward that raised reaches us with None and the exception in flight.
  const bool raised = args[3] == Py_None && HandledError().get() != frame->handled_error.get();
  if (frame->region != nullptr && !raised) {
    BackwardRegion* parent = ts.modules.empty() ? nullptr : ts.modules.back()->region.get();
    EndRegion(std::move(frame->region), args[3], {hook->module, frame->call.number, false}, parent);
  }
  s.collector->LeaveModule(frame->call);
  ClearError();
  Py_RETURN_NONE;
}

// (parameter) -> None, after its gradient was accumulated
PyObject* ParameterHookCall(PyObject* self, PyObject* const* args, size_t nargsf, PyObject*) {
  auto* const hook = reinterpret_cast<ModuleHook*>(self);
  const Session& s = session();
  ThreadState& ts = thread_state();
  const bool active = hook->late == 0 ? s.on
                                      : s.collector != nullptr && !s.on && !hook->fired &&
                                            hook->late == s.generation;
  if (PyVectorcall_NARGS(nargsf) < 1 || !active || ts.tool_depth > 0) Py_RETURN_NONE;
  hook->fired = true;
  const DepthGuard tool(ts.tool_depth);
  const Quiet quiet;
  const Ref main_grad = Ref::Steal(PyObject_GetAttrString(args[0], "main_grad"));  // Megatron's
  if (!main_grad) ClearError();
  const Ref grad = main_grad && main_grad.get() != Py_None
                       ? main_grad
                       : Ref::Steal(torch_objects().grad(args[0]));
  if (grad && !DeferParameterGrad(hook->module, hook->parameter, grad.get())) {
    s.collector->ParameterGrad(
        hook->module, Utf8(hook->parameter).view(),
        [&](collect::EntryBuilder& builder) { Describer(builder).Value(grad.get()); });
  }
  ClearError();
  Py_RETURN_NONE;
}

// Copied or pickled, a hook of ours becomes something of the standard library that does nothing.
PyObject* Reduce(PyObject*, PyObject*) {
  Py_INCREF(torch_objects().inert);
  return torch_objects().inert;
}

PyMethodDef hook_methods[] = {{"__reduce__", Reduce, METH_NOARGS, nullptr},
                              {nullptr, nullptr, 0, nullptr}};

PyMemberDef hook_members[] = {
    {"fired", T_BOOL, offsetof(ModuleHook, fired), READONLY, "Of a parameter: it had a gradient."},
    {nullptr, 0, 0, 0, nullptr}};

PyObject* NewHook(vectorcallfunc call, uint32_t module, PyObject* parameter, bool late = false) {
  auto* const hook = PyObject_New(ModuleHook, &hook_type);
  if (hook == nullptr) return nullptr;
  Py_XINCREF(parameter);
  hook->call = call;
  hook->module = module;
  hook->parameter = parameter;
  hook->late = late ? session().generation : 0;
  hook->fired = false;
  return reinterpret_cast<PyObject*>(hook);
}

}  // namespace

PyObject* NewPreHook(uint32_t module) { return NewHook(PreHookCall, module, nullptr); }
PyObject* NewPostHook(uint32_t module) { return NewHook(PostHookCall, module, nullptr); }
PyObject* NewParameterHook(uint32_t module, PyObject* name, bool late) {
  return NewHook(ParameterHookCall, module, name, late);
}

bool WasEntered(uint32_t module) { return module < entered().size() && entered()[module]; }
void ForgetEntered() { entered().clear(); }

void DropThreadModules() {
  ThreadState& ts = thread_state();
  while (!ts.modules.empty()) {
    const std::unique_ptr<ModuleFrame> frame = std::move(ts.modules.back());
    ts.modules.pop_back();
    if (frame->generation != session().generation) {
      DiscardEntry(std::move(frame->builder));
      continue;
    }
    CommitEntry(std::move(frame->builder));
    session().collector->LeaveModule(frame->call);
  }
}

bool InitModules() {
  MakeCallable(hook_type, "msprobe._core.capture.ModuleHook", sizeof(ModuleHook),
               offsetof(ModuleHook, call), 0, [](PyObject* self) {
                 Py_XDECREF(reinterpret_cast<ModuleHook*>(self)->parameter);
                 Py_TYPE(self)->tp_free(self);
               });
  hook_type.tp_methods = hook_methods;
  hook_type.tp_members = hook_members;
  return PyType_Ready(&hook_type) == 0;
}

}  // namespace msprobe::capture
