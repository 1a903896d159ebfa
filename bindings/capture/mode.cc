#include "bindings/capture/mode.h"

#include <cstddef>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bindings/capture/state.h"

namespace msprobe::capture {
namespace {

PyObject* our_mode = nullptr;

bool IsDeviceContext(PyObject* mode) {
  return std::string_view(Py_TYPE(mode)->tp_name) == "DeviceContext";
}

PyObject* Pop() { return PyObject_CallNoArgs(torch_objects().pop_mode); }

bool Push(PyObject* mode) {
  return static_cast<bool>(Ref::Steal(PyObject_CallOneArg(torch_objects().push_mode, mode)));
}

// All modes of this thread, innermost first; the stack is empty afterwards.
std::vector<Ref> PopAll() {
  std::vector<Ref> modes;
  for (long n = ModeCount(); n > 0; --n) modes.push_back(Ref::Steal(Pop()));
  return modes;
}

// Takes our mode off this thread's stack for a while. `was_on` tells whether it was there.
class ModeOff {
 public:
  ModeOff() {
    if (ModeCount() == 0) return;
    top_ = Ref::Steal(Pop());
    if (top_.get() == our_mode) {
      was_on_ = true;
      return;
    }
    if (top_) Push(top_.get());
    top_ = Ref();
    was_on_ = buried_ = RemoveMode();
    ClearError();
  }
  ~ModeOff() {
    if (!was_on_) return;
    const PendingError hold;
    if (buried_) {
      PushMode();
    } else {
      Push(our_mode);
    }
    ClearError();
  }
  ModeOff(const ModeOff&) = delete;
  ModeOff& operator=(const ModeOff&) = delete;
  bool was_on() const { return was_on_; }

 private:
  Ref top_;
  bool was_on_ = false, buried_ = false;
};

// ---- the handler
// ---------------------------------------------------------------------------------------------------------------

struct Mode {
  PyObject_HEAD
};

PyTypeObject mode_type;

// Runs a transparent function's body with the mode on again.
PyObject* CallTransparent(PyObject* clone, PyObject* args, PyObject* kwargs) {
  const bool pushed = PushMode();
  ClearError();
  PyObject* const result = PyObject_Call(clone, args, kwargs);
  if (pushed) {
    const PendingError hold;
    RemoveMode();
    ClearError();
  }
  return result;
}

// The entry of a function that no list names (risk_level EVERY); nullptr: it is not to be recorded.
// Asked once per function.
const ApiEntry* EveryEntry(PyObject* function) {
  // Apart from the listed ones: another collection of this process may not want them.
  static auto* const known = new std::unordered_map<PyObject*, const ApiEntry*>;
  if (const auto it = known->find(function); it != known->end()) return it->second;
  const DepthGuard tool(thread_state().tool_depth);
  const Quiet quiet;
  const ApiEntry* entry = nullptr;
  const Ref capsule = Ref::Steal(PyObject_CallOneArg(torch_objects().every_entry, function));
  if (capsule && PyCapsule_CheckExact(capsule.get()) != 0) {
    entry = static_cast<ApiEntry*>(PyCapsule_GetPointer(capsule.get(), kEntryCapsule));
  }
  if (!capsule) ReportPythonFailure("naming a function");
  ClearError();
  Py_INCREF(function);  // so that its address stays its own
  known->emplace(function, entry);
  return entry;
}

// __torch_function__(func, types, args=(), kwargs=None)
PyObject* TorchFunction(PyObject*, PyObject* const* a, Py_ssize_t n) {
  if (n < 1) {
    PyErr_SetString(PyExc_TypeError, "__torch_function__ needs a function");
    return nullptr;
  }
  PyObject* const function = a[0];
  Ref empty;
  PyObject* args = n > 2 ? a[2] : nullptr;
  if (args == nullptr || !PyTuple_Check(args)) {
    empty = Ref::Steal(args == nullptr ? PyTuple_New(0) : PySequence_Tuple(args));
    if (!empty) return nullptr;
    args = empty.get();
  }
  PyObject* const kwargs =
      n > 3 && PyDict_Check(a[3]) && PyDict_GET_SIZE(a[3]) > 0 ? a[3] : nullptr;
  ThreadState& ts = thread_state();
  const ApiEntry* const noted = std::exchange(ts.operator_entry, nullptr);
  const bool was_noted = std::exchange(ts.operator_noted, false);
  const Session& s = session();
  // Property reads come as method wrappers, a new one each time: the first and cheapest test.
  if (!s.on || !s.apis || ts.api_depth > 0 || ts.tool_depth > 0 ||
      Py_TYPE(function) == &_PyMethodWrapper_Type) {
    return PyObject_Call(function, args, kwargs);
  }
  const ApiEntry* entry = was_noted ? noted : FindApi(function);
  if (entry == nullptr && s.every) entry = EveryEntry(function);
  if (entry == nullptr) return PyObject_Call(function, args, kwargs);
  if (entry->body_clone != nullptr) return CallTransparent(entry->body_clone, args, kwargs);
  return RecordCall(*entry, function, function, args, kwargs);
}

PyMethodDef mode_methods[] = {
    {"__torch_function__", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(TorchFunction)),
     METH_FASTCALL, "Records the call if it is a listed one, and makes it."},
    {nullptr, nullptr, 0, nullptr}};

// ---- operator slots
// ------------------------------------------------------------------------------------------------------------

struct OperatorSlot {
  PyObject_HEAD vectorcallfunc call;
  PyObject* original;
  const ApiEntry* entry;
};

PyTypeObject operator_slot_type;

PyObject* OperatorSlotCall(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* names) {
  const auto* slot = reinterpret_cast<OperatorSlot*>(self);
  ThreadState& ts = thread_state();
  const ApiEntry* const outer = ts.operator_entry;
  const bool outer_noted = ts.operator_noted;
  ts.operator_entry = slot->entry;
  ts.operator_noted = true;
  PyObject* const result = PyObject_Vectorcall(slot->original, args, nargsf, names);
  ts.operator_entry = outer;
  ts.operator_noted = outer_noted;
  return result;
}

PyObject* OperatorSlotGet(PyObject* self, PyObject* object, PyObject*) {
  if (object == nullptr || object == Py_None) {
    Py_INCREF(self);
    return self;
  }
  return PyMethod_New(self, object);
}

// Dynamo and others ask a method for its name, its document and more: the original answers.
PyObject* OperatorSlotAttribute(PyObject* self, PyObject* name) {
  return PyObject_GetAttr(reinterpret_cast<OperatorSlot*>(self)->original, name);
}

PyObject* OperatorSlotRepr(PyObject* self) {
  return PyObject_Repr(reinterpret_cast<OperatorSlot*>(self)->original);
}

void OperatorSlotFree(PyObject* self) {
  Py_XDECREF(reinterpret_cast<OperatorSlot*>(self)->original);
  Py_TYPE(self)->tp_free(self);
}

// ---- hooks behind swapped code
// ---------------------------------------------------------------------------------------------------

struct SwapHook {
  PyObject_HEAD vectorcallfunc call;
  PyObject* function;
  PyObject* body;
  const ApiEntry* entry;
};

PyTypeObject swap_hook_type;

bool AllDisabled() {
  const Ref answer = Ref::Steal(PyObject_CallNoArgs(torch_objects().all_disabled));
  if (!answer) ClearError();
  return answer.get() == Py_True;
}

// (args: tuple, kwargs: dict)
PyObject* SwapHookCall(PyObject* self, PyObject* const* a, size_t nargsf, PyObject*) {
  const auto* hook = reinterpret_cast<SwapHook*>(self);
  if (PyVectorcall_NARGS(nargsf) != 2) {
    PyErr_SetString(PyExc_TypeError, "a swap hook takes the arguments and the keywords");
    return nullptr;
  }
  PyObject* const args = a[0];
  PyObject* const kwargs = PyDict_GET_SIZE(a[1]) > 0 ? a[1] : nullptr;
  const Session& s = session();
  const ThreadState& ts = thread_state();
  if (!s.on || !s.apis || ts.api_depth > 0 || ts.tool_depth > 0 || AllDisabled()) {
    return PyObject_Call(hook->body, args, kwargs);
  }
  const ModeOff off;
  if (!off.was_on()) return PyObject_Call(hook->body, args, kwargs);  // a thread without the mode
  return RecordCall(*hook->entry, hook->function, hook->body, args, kwargs);
}

void SwapHookFree(PyObject* self) {
  Py_XDECREF(reinterpret_cast<SwapHook*>(self)->function);
  Py_XDECREF(reinterpret_cast<SwapHook*>(self)->body);
  Py_TYPE(self)->tp_free(self);
}

// ---- has_torch_function that does not see us
// --------------------------------------------------------------------------------------

struct Blind {
  PyObject_HEAD vectorcallfunc call;
  PyObject* original;
};

PyTypeObject blind_type;

PyObject* BlindCall(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* names) {
  const ModeOff off;
  return PyObject_Vectorcall(reinterpret_cast<Blind*>(self)->original, args, nargsf, names);
}

void BlindFree(PyObject* self) {
  Py_XDECREF(reinterpret_cast<Blind*>(self)->original);
  Py_TYPE(self)->tp_free(self);
}

PyObject* BlindAttribute(PyObject* self, PyObject* name) {
  return PyObject_GetAttr(reinterpret_cast<Blind*>(self)->original, name);
}

}  // namespace

bool InitMode(PyObject* module) {
  Py_SET_REFCNT(reinterpret_cast<PyObject*>(&mode_type), 1);
  mode_type.tp_name = "msprobe._core.capture.Mode";
  mode_type.tp_doc = "Base of the function mode that records calls.";
  mode_type.tp_basicsize = sizeof(Mode);
  mode_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE;
  mode_type.tp_methods = mode_methods;
  mode_type.tp_new = PyType_GenericNew;
  MakeCallable(operator_slot_type, "msprobe._core.capture.OperatorSlot", sizeof(OperatorSlot),
               offsetof(OperatorSlot, call), Py_TPFLAGS_METHOD_DESCRIPTOR, OperatorSlotFree);
  operator_slot_type.tp_descr_get = OperatorSlotGet;
  operator_slot_type.tp_getattro = OperatorSlotAttribute;
  operator_slot_type.tp_repr = OperatorSlotRepr;
  MakeCallable(swap_hook_type, "msprobe._core.capture.SwapHook", sizeof(SwapHook),
               offsetof(SwapHook, call), 0, SwapHookFree);
  MakeCallable(blind_type, "msprobe._core.capture.Blind", sizeof(Blind), offsetof(Blind, call), 0,
               BlindFree);
  blind_type.tp_getattro = BlindAttribute;
  for (PyTypeObject* type : {&mode_type, &operator_slot_type, &swap_hook_type, &blind_type}) {
    if (PyType_Ready(type) != 0) return false;
  }
  return PyModule_AddObjectRef(module, "Mode", reinterpret_cast<PyObject*>(&mode_type)) == 0;
}

PyObject* NewOperatorSlot(PyObject* original, const ApiEntry* entry) {
  auto* const slot = PyObject_New(OperatorSlot, &operator_slot_type);
  if (slot == nullptr) return nullptr;
  Py_INCREF(original);
  slot->call = OperatorSlotCall;
  slot->original = original;
  slot->entry = entry;
  return reinterpret_cast<PyObject*>(slot);
}

PyObject* NewSwapHook(PyObject* function, PyObject* body, const ApiEntry* entry) {
  auto* const hook = PyObject_New(SwapHook, &swap_hook_type);
  if (hook == nullptr) return nullptr;
  Py_INCREF(function);
  Py_INCREF(body);
  hook->call = SwapHookCall;
  hook->function = function;
  hook->body = body;
  hook->entry = entry;
  return reinterpret_cast<PyObject*>(hook);
}

PyObject* NewBlind(PyObject* original) {
  auto* const blind = PyObject_New(Blind, &blind_type);
  if (blind == nullptr) return nullptr;
  Py_INCREF(original);
  blind->call = BlindCall;
  blind->original = original;
  return reinterpret_cast<PyObject*>(blind);
}

void SetMode(PyObject* mode) {
  Py_XINCREF(mode);
  Py_XSETREF(our_mode, mode);
}

bool PushMode() {
  if (our_mode == nullptr) return false;
  if (ModeCount() == 0) return Push(our_mode);
  const std::vector<Ref> modes = PopAll();  // innermost first
  size_t outermost = modes.size();
  while (outermost > 0 && modes[outermost - 1] && IsDeviceContext(modes[outermost - 1].get())) {
    Push(modes[--outermost].get());
  }
  const bool pushed = Push(our_mode);
  while (outermost > 0) {
    --outermost;
    if (modes[outermost].get() != our_mode) Push(modes[outermost].get());
  }
  return pushed;
}

bool RemoveMode() {
  if (our_mode == nullptr || ModeCount() == 0) return false;
  const std::vector<Ref> modes = PopAll();
  bool found = false;
  for (size_t i = modes.size(); i-- > 0;) {
    if (modes[i].get() == our_mode) {
      found = true;
    } else {
      Push(modes[i].get());
    }
  }
  return found;
}

}  // namespace msprobe::capture
