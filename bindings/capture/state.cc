#include "bindings/capture/state.h"

#include "bindings/capture/modules.h"

namespace msprobe::capture {

ThreadState::ThreadState() = default;
ThreadState::~ThreadState() = default;

Torch& torch_objects() {
  static auto* const objects = new Torch;
  return *objects;
}

Session& session() {
  static Session s;
  return s;
}

ThreadState& thread_state() {
  // Not destroyed with the thread: the builders inside may only die with the global lock held
  // (DropThreadModules).
  thread_local auto* const state = new ThreadState;
  return *state;
}

bool Getter::Resolve(PyTypeObject* type, const char* name) {
  Ref descriptor = Ref::Steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), name));
  if (!descriptor) return false;
  if (Py_TYPE(descriptor.get()) == &PyGetSetDescr_Type) {
    const auto* get_set = reinterpret_cast<PyGetSetDescrObject*>(descriptor.get());
    fn_ = get_set->d_getset->get;
    closure_ = get_set->d_getset->closure;
    descriptor.release();  // the definition lives as long as its type
  }
  name_ = PyUnicode_InternFromString(name);
  return name_ != nullptr;
}

PyObject* Getter::operator()(PyObject* object) const {
  return fn_ != nullptr ? fn_(object, closure_) : PyObject_GetAttr(object, name_);
}

bool NoArgMethod::Resolve(PyTypeObject* type, const char* name) {
  Ref descriptor = Ref::Steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), name));
  if (!descriptor) return false;
  if (Py_TYPE(descriptor.get()) == &PyMethodDescr_Type) {
    const auto* method = reinterpret_cast<PyMethodDescrObject*>(descriptor.get());
    if (method->d_method->ml_flags == METH_NOARGS) {
      fn_ = method->d_method->ml_meth;
      descriptor.release();
    }
  }
  name_ = PyUnicode_InternFromString(name);
  return name_ != nullptr;
}

PyObject* NoArgMethod::Call(PyObject* object) const {
  return fn_ != nullptr ? fn_(object, nullptr) : PyObject_CallMethodNoArgs(object, name_);
}

int NoArgMethod::Truth(PyObject* object) const {
  const Ref answer = Ref::Steal(Call(object));
  if (!answer) return -1;
  return answer.get() == Py_True ? 1 : 0;
}

long ModeCount() {
  const Ref count = Ref::Steal(PyObject_CallNoArgs(torch_objects().mode_count));
  if (!count) {
    ClearError();
    return 0;
  }
  return PyLong_AsLong(count.get());
}

bool GradEnabled() {
  const Ref answer = Ref::Steal(PyObject_CallNoArgs(torch_objects().grad_enabled));
  if (!answer) ClearError();
  return answer.get() == Py_True;
}

Quiet::Quiet() {
  const Torch& torch = torch_objects();
  const long modes = ModeCount();
  if (modes == 0) return;
  if (modes == 1) {
    popped_ = Ref::Steal(PyObject_CallNoArgs(torch.pop_mode));
  } else {
    disabled_ = Ref::Steal(PyObject_CallNoArgs(torch.disable));
    if (disabled_) Ref::Steal(PyObject_CallMethodNoArgs(disabled_.get(), torch.s_enter));
  }
  ClearError();
}

Quiet::~Quiet() {
  if (!popped_ && !disabled_) return;
  const PendingError hold;
  const Torch& torch = torch_objects();
  if (popped_) {
    Ref::Steal(PyObject_CallOneArg(torch.push_mode, popped_.get()));
  } else {
    PyObject* args[] = {disabled_.get(), Py_None, Py_None, Py_None};
    Ref::Steal(PyObject_VectorcallMethod(torch.s_exit, args, 4, nullptr));
  }
  ClearError();
}

namespace {

// Raises what ClearError() set aside. Runs in the main thread, between two bytecodes.
int RaiseAgain(void* exception) {
  auto* value = static_cast<PyObject*>(exception);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(value)), value);
  Py_DECREF(value);
  return -1;
}

}  // namespace

void ClearError() {
  if (PyErr_Occurred() == nullptr) return;
  if (PyErr_ExceptionMatches(PyExc_Exception) != 0) {
    PyErr_Clear();
    return;
  }
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  if (value != nullptr && Py_AddPendingCall(RaiseAgain, value) != 0) {
    Py_DECREF(value);
    PyErr_SetInterrupt();  // no room among the pending calls: at least an interrupt
  }
}

std::string TakeErrorText() {
  if (PyErr_Occurred() == nullptr) return {};
  if (PyErr_ExceptionMatches(PyExc_Exception) == 0) {
    ClearError();
    return {};
  }
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  const Ref t = Ref::Steal(type), v = Ref::Steal(value), tb = Ref::Steal(traceback);
  std::string text = t ? reinterpret_cast<PyTypeObject*>(t.get())->tp_name : "error";
  if (const Ref s = Ref::Steal(v ? PyObject_Str(v.get()) : nullptr)) {
    if (const char* utf8 = PyUnicode_AsUTF8(s.get())) text.append(": ").append(utf8);
  }
  ClearError();
  if (text.size() > 300) text.resize(300);
  return text;
}

void ReportPythonFailure(const char* kind) {
  if (PyErr_Occurred() != nullptr && PyErr_ExceptionMatches(PyExc_Exception) == 0) {
    ClearError();  // not a failure of ours: it goes on to the user's program
    return;
  }
  const std::string text = TakeErrorText();
  if (session().collector != nullptr) session().collector->ReportFailure(kind, text);
}

namespace {

// A strong reference to objects[name]; with a KeyError set when it is missing.
PyObject* Take(PyObject* objects, const char* name) {
  PyObject* found = PyDict_GetItemString(objects, name);
  if (found == nullptr) {
    PyErr_Format(PyExc_KeyError, "capture.init: no %s", name);
    return nullptr;
  }
  Py_INCREF(found);
  return found;
}

bool TakeAll(PyObject* objects, std::initializer_list<std::pair<const char*, PyObject**>> wanted) {
  for (const auto& [name, place] : wanted) {
    *place = Take(objects, name);
    if (*place == nullptr) return false;
  }
  return true;
}

PyObject** Place(PyTypeObject*& type) { return reinterpret_cast<PyObject**>(&type); }

void FindExchangeTable(Torch& torch) {
  const Ref capsule = Ref::Steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(torch.tensor),
                                                        "__dlpack_c_exchange_api__"));
  torch.exchange = nullptr;
  if (capsule && PyCapsule_IsValid(capsule.get(), dlpack::kCapsuleName) != 0) {
    const auto* header = static_cast<const dlpack::ExchangeHeader*>(
        PyCapsule_GetPointer(capsule.get(), dlpack::kCapsuleName));
    while (header != nullptr && header->version.major > dlpack::kMajorVersion) {
      header = header->older;
    }
    if (header != nullptr && header->version.major == dlpack::kMajorVersion) {
      torch.exchange = reinterpret_cast<const dlpack::ExchangeApi*>(header);
      if (torch.exchange->tensor_from_object == nullptr) torch.exchange = nullptr;
    }
  }
  ClearError();
}

// What the Python side hands over.
bool TakeObjects(PyObject* objects, Torch& torch) {
  return TakeAll(objects, {{"tensor", Place(torch.tensor)},
                           {"parameter", Place(torch.parameter)},
                           {"push_mode", &torch.push_mode},
                           {"pop_mode", &torch.pop_mode},
                           {"mode_count", &torch.mode_count},
                           {"all_disabled", &torch.all_disabled},
                           {"disable", &torch.disable},
                           {"grad_enabled", &torch.grad_enabled},
                           {"plain_tensor", &torch.plain_tensor},
                           {"other_leaf", &torch.other_leaf},
                           {"leaf_edge", &torch.leaf_edge},
                           {"add_gradients", &torch.add_gradients},
                           {"next_sequence", &torch.next_sequence},
                           {"getline", &torch.getline},
                           {"every_entry", &torch.every_entry},
                           {"reduce", &torch.reduce},
                           {"copy", &torch.copy},
                           {"fetch", &torch.fetch},
                           {"any_autocast", &torch.any_autocast},
                           {"autocast_text", &torch.autocast_text},
                           {"random_state", &torch.random_state},
                           {"random_text", &torch.random_text},
                           {"storage_address", &torch.storage_address},
                           {"storage_carrier", &torch.storage_carrier},
                           {"storage_expired", &torch.storage_expired},
                           {"free_weak_ref", &torch.free_weak_ref},
                           {"inert", &torch.inert},
                           {"size", Place(torch.size)},
                           {"dtype", Place(torch.dtype)},
                           {"device", Place(torch.device)},
                           {"memory_format", Place(torch.memory_format)},
                           {"layout", Place(torch.layout)}});
}

bool InternNames(Torch& torch) {
  const std::pair<const char*, PyObject**> names[] = {
      {"register_hook", &torch.s_register_hook},
      {"register_prehook", &torch.s_register_prehook},
      {"next_functions", &torch.s_next_functions},
      {"_sequence_nr", &torch.s_sequence_nr},
      {"_parameters", &torch.s_parameters},
      {"grad_fn", &torch.s_grad_fn},
      {"__enter__", &torch.s_enter},
      {"__exit__", &torch.s_exit},
      {"_fields", &torch.s_fields},
      {"__dataclass_fields__", &torch.s_dataclass_fields},
      {"p", &torch.s_p},
      {"_cdata", &torch.s_cdata},
      {"_set_cdata", &torch.s_set_cdata},
      {"_weak_ref", &torch.s_weak_ref},
      {"_buffers", &torch.s_buffers},
      {"is_cpu", &torch.s_is_cpu}};
  for (const auto& [text, place] : names) {
    *place = PyUnicode_InternFromString(text);
    if (*place == nullptr) return false;
  }
  return true;
}

}  // namespace

bool InitTorch(PyObject* objects) {
  Torch& torch = torch_objects();
  if (torch.ready) return true;
  if (!TakeObjects(objects, torch) || !InternNames(torch)) return false;
  PyObject* directory = PyDict_GetItemString(objects, "package_dir");
  const char* path = directory != nullptr ? PyUnicode_AsUTF8(directory) : nullptr;
  if (path == nullptr) return false;
  torch.package_dir = path;
  if (!torch.requires_grad.Resolve(torch.tensor, "requires_grad") ||
      !torch.grad_fn.Resolve(torch.tensor, "grad_fn") ||
      !torch.output_nr.Resolve(torch.tensor, "output_nr") ||
      !torch.grad.Resolve(torch.tensor, "grad") ||
      !torch.version.Resolve(torch.tensor, "_version") ||
      !torch.is_neg.Resolve(torch.tensor, "is_neg") ||
      !torch.is_conj.Resolve(torch.tensor, "is_conj")) {
    return false;
  }
  if (PyDict_GetItemString(objects, "without_exchange") == nullptr) FindExchangeTable(torch);
  torch.ready = true;
  return true;
}

}  // namespace msprobe::capture
