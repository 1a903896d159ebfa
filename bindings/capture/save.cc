#include "bindings/capture/save.h"

#include <cstddef>
#include <memory>

#include "bindings/capture/describe.h"
#include "bindings/capture/state.h"

namespace msprobe::capture {
namespace {

using collect::EntryBuilder;
using collect::Part;

// A tensor hook: (gradient) -> None.
struct SaveHook {
  PyObject_HEAD vectorcallfunc call;
  PyObject* name;  // a str
  int64_t number;
  uint32_t slot;
  uint64_t generation;
};

PyTypeObject save_hook_type;

PyObject* SaveHookCall(PyObject* self, PyObject* const* args, size_t nargsf, PyObject*) {
  const auto* hook = reinterpret_cast<SaveHook*>(self);
  const Session& s = session();
  ThreadState& ts = thread_state();
  if (PyVectorcall_NARGS(nargsf) < 1 || s.collector == nullptr ||
      hook->generation != s.generation || ts.tool_depth > 0) {
    Py_RETURN_NONE;
  }
  const DepthGuard tool(ts.tool_depth);
  const Quiet quiet;
  s.collector->DebugGrad(Utf8(hook->name).view(), hook->number, hook->slot,
                         [&](EntryBuilder& builder) { Describer(builder).Value(args[0]); });
  ClearError();
  Py_RETURN_NONE;
}

// Copied or pickled, it becomes something of the standard library that does nothing.
PyObject* Reduce(PyObject*, PyObject*) {
  Py_INCREF(torch_objects().inert);
  return torch_objects().inert;
}

PyMethodDef hook_methods[] = {{"__reduce__", Reduce, METH_NOARGS, nullptr},
                              {nullptr, nullptr, 0, nullptr}};

bool RequiresGrad(PyObject* tensor) {
  const Torch& torch = torch_objects();
  const Ref answer = Ref::Steal(torch.requires_grad(tensor));
  if (!answer) ClearError();
  return answer.get() == Py_True;
}

// The structure of a variable once more: a slot with a hook for each tensor that requires grad,
// null for every other leaf.
class Slots {
 public:
  Slots(EntryBuilder& builder, PyObject* name, int64_t number, PyObject* handles)
      : builder_(builder), name_(name), number_(number), handles_(handles) {}

  // NOLINTNEXTLINE(misc-no-recursion): the depth was checked
  void Value(PyObject* value) {
    if (PyObject_TypeCheck(value, torch_objects().tensor)) {
      if (RequiresGrad(value)) {
        Hook(value, builder_.Slot());
      } else {
        builder_.Null();
      }
    } else if (IsNamedTuple(value)) {
      Named(value);
    } else if (PyList_Check(value) || PyTuple_Check(value)) {
      builder_.OpenList();
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i) {
        const Ref item = Ref::Borrow(PySequence_Fast_GET_ITEM(value, i));
        Value(item.get());
      }
      builder_.CloseList();
    } else if (PyDict_Check(value)) {
      builder_.OpenObject();
      Py_ssize_t position = 0;
      PyObject *key = nullptr, *item = nullptr;
      while (PyDict_Next(value, &position, &key, &item) != 0) {
        const Ref k = Ref::Borrow(key), v = Ref::Borrow(item);
        builder_.Key(Utf8(key).view());
        Value(item);
      }
      builder_.CloseObject();
    } else {
      builder_.Null();
    }
  }

 private:
  // NOLINTNEXTLINE(misc-no-recursion)
  void Named(PyObject* value) {
    const Ref names = Ref::Steal(PyObject_GetAttr(value, torch_objects().s_fields));
    builder_.OpenObject();
    for (Py_ssize_t i = 0; names && PyTuple_Check(names.get()) &&
                           i < PyTuple_GET_SIZE(names.get()) && i < PyTuple_GET_SIZE(value);
         ++i) {
      builder_.Key(Utf8(PyTuple_GET_ITEM(names.get(), i)).view());
      Value(PyTuple_GET_ITEM(value, i));
    }
    builder_.CloseObject();
    ClearError();
  }

  void Hook(PyObject* tensor, uint32_t slot) {
    const Ref hook =
        Ref::Steal(reinterpret_cast<PyObject*>(PyObject_New(SaveHook, &save_hook_type)));
    if (hook) {
      auto* const h = reinterpret_cast<SaveHook*>(hook.get());
      Py_INCREF(name_);
      h->call = SaveHookCall;
      h->name = name_;
      h->number = number_;
      h->slot = slot;
      h->generation = session().generation;
    }
    const Ref handle =
        Ref::Steal(hook ? PyObject_CallMethod(tensor, "register_hook", "O", hook.get()) : nullptr);
    if (!handle || PyList_Append(handles_, handle.get()) != 0) {
      ReportPythonFailure("hooking a saved tensor");
    }
  }

  EntryBuilder& builder_;
  PyObject* name_;
  int64_t number_;
  PyObject* handles_;
};

}  // namespace

PyObject* SaveVariable(PyObject* variable, PyObject* name, std::optional<int64_t> rank,
                       bool gradients) {
  Ref handles = Ref::Steal(PyList_New(0));
  collect::Collector* const collector = session().collector;
  if (!handles || collector == nullptr) return handles.release();
  ThreadState& ts = thread_state();
  const DepthGuard tool(ts.tool_depth);
  const Quiet quiet;
  const Utf8 text(name);
  int64_t number = -1;
  std::unique_ptr<EntryBuilder> builder = collector->BeginDebug(text.view(), {rank}, &number);
  if (builder != nullptr) {
    builder->BeginPart(Part::kWhole);
    Describer(*builder).Value(variable);
    builder->EndPart();
    builder->Commit();
    if (gradients) builder = collector->BeginDebugGrad(text.view(), number);
    if (gradients && builder != nullptr) {
      builder->BeginPart(Part::kWhole);
      Slots(*builder, name, number, handles.get()).Value(variable);
      builder->EndPart();
      builder->Commit();
    }
  }
  ClearError();
  return handles.release();
}

bool InitSave() {
  MakeCallable(save_hook_type, "msprobe._core.capture.SaveHook", sizeof(SaveHook),
               offsetof(SaveHook, call), 0, [](PyObject* self) {
                 Py_XDECREF(reinterpret_cast<SaveHook*>(self)->name);
                 Py_TYPE(self)->tp_free(self);
               });
  save_hook_type.tp_methods = hook_methods;
  // Says to torch that a pickled tensor may go without this hook.
  return PyType_Ready(&save_hook_type) == 0 &&
         PyDict_SetItemString(save_hook_type.tp_dict, "__torch_unserializable__", Py_True) == 0;
}

}  // namespace msprobe::capture
