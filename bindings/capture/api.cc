#include "bindings/capture/api.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bindings/capture/device.h"
#include "bindings/capture/evidence.h"
#include "bindings/capture/module_backward.h"
#include "bindings/capture/recompute.h"
#include "bindings/capture/stack.h"

namespace msprobe::capture {
namespace {

using collect::EntryBuilder;
using collect::Part;

// ---- table
// -----------------------------------------------------------------------------------------------------------------

struct Table {
  std::unordered_map<PyObject*, const ApiEntry*> by_function;
  std::unordered_map<std::string, std::unique_ptr<ApiEntry>> by_name;
  std::vector<std::unique_ptr<ApiEntry>> transparent;
};

Table& table() {
  static auto* const t = new Table;
  return *t;
}

// ---- backward hook
// -----------------------------------------------------------------------------------------------------------

// A read-only post-hook of an autograd node: (gradients of the node's inputs, gradients of its
// outputs) -> None.
struct BackwardHook {
  PyObject_HEAD vectorcallfunc call;
  const ApiEntry* entry;
  int64_t number;
  uint64_t generation;
  bool hands_on;  // the node is that of the call before: the gradient goes on as it comes
};

PyTypeObject backward_hook_type;

void DescribeGradients(EntryBuilder& builder, Part part, PyObject* gradients) {
  builder.BeginPart(part);
  builder.OpenList();
  Describer describe(builder);
  if (part == Part::kOutput) describe.SetProduces();
  if (PyTuple_Check(gradients)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(gradients); ++i) {
      describe.Value(PyTuple_GET_ITEM(gradients, i));
    }
  } else {
    describe.Value(gradients);
  }
  builder.CloseList();
  builder.EndPart();
}

PyObject* BackwardHookCall(PyObject* self, PyObject* const* args, size_t nargsf, PyObject*) {
  const auto* hook = reinterpret_cast<BackwardHook*>(self);
  const Session& s = session();
  ThreadState& ts = thread_state();
  if (PyVectorcall_NARGS(nargsf) < 2 || s.collector == nullptr ||
      hook->generation != s.generation || ts.tool_depth > 0) {
    Py_RETURN_NONE;
  }
  const DepthGuard tool(ts.tool_depth);
  const Quiet quiet;
  if (auto builder = s.collector->BeginApiBackward(hook->entry->id, hook->number)) {
    DescribeGradients(*builder, Part::kInput, args[1]);
    DescribeGradients(*builder, Part::kOutput, hook->hands_on ? args[1] : args[0]);
    CommitEntry(std::move(builder));
  }
  ClearError();
  Py_RETURN_NONE;
}

// First tensor of the output: first element of a list or tuple, first tensor value of a dict.
// Borrowed; nullptr: none.
PyObject* FirstTensor(PyObject* value) {
  const Torch& torch = torch_objects();
  for (int depth = 0; depth < 400; ++depth) {
    if (PyObject_TypeCheck(value, torch.tensor)) return value;
    if ((PyTuple_Check(value) || PyList_Check(value)) && PySequence_Fast_GET_SIZE(value) > 0) {
      value = PySequence_Fast_GET_ITEM(value, 0);
      continue;
    }
    if (!PyDict_Check(value)) return nullptr;
    Py_ssize_t position = 0;
    PyObject *key = nullptr, *item = nullptr, *found = nullptr;
    while (found == nullptr && PyDict_Next(value, &position, &key, &item) != 0) {
      if (PyObject_TypeCheck(item, torch.tensor)) found = item;
    }
    return found;
  }
  return nullptr;
}

// Dropout with probability 0 hands its input on; p is argument 1, keyword p, else 0.5.
bool DropsNothing(PyObject* args, PyObject* kwargs) {
  PyObject* p = PyTuple_GET_SIZE(args) > 1 ? PyTuple_GET_ITEM(args, 1) : nullptr;
  if (p == nullptr && kwargs != nullptr) p = PyDict_GetItemWithError(kwargs, torch_objects().s_p);
  if (p == nullptr || (!PyFloat_Check(p) && !PyLong_Check(p))) return false;
  const double value = PyFloat_AsDouble(p);
  if (PyErr_Occurred() != nullptr) ClearError();
  return value == 0.0;
}

// The call made no node of its own: what hangs at its result is the node of the call before.
bool HandsOn(const ApiEntry& entry, PyObject* args, PyObject* output) {
  return entry.casts && PyTuple_GET_SIZE(args) > 0 && PyTuple_GET_ITEM(args, 0) == output;
}

void HookBackward(const ApiEntry& entry, int64_t number, PyObject* args, PyObject* kwargs,
                  PyObject* output) {
  const Torch& torch = torch_objects();
  PyObject* const tensor = FirstTensor(output);
  if (tensor == nullptr) return;
  const Ref node =
      Ref::Steal(Py_TYPE(tensor) == torch.tensor ? torch.grad_fn(tensor)
                                                 : PyObject_GetAttr(tensor, torch.s_grad_fn));
  if (!node || node.get() == Py_None || !GradEnabled()) {
    ClearError();
    return;
  }
  if (entry.dropout && DropsNothing(args, kwargs)) return;
  if (!session().collector->ApiPasses(entry.id, number, collect::Direction::kBackward)) return;
  const Ref hook =
      Ref::Steal(reinterpret_cast<PyObject*>(PyObject_New(BackwardHook, &backward_hook_type)));
  if (!hook) {
    ClearError();
    return;
  }
  auto* const h = reinterpret_cast<BackwardHook*>(hook.get());
  h->call = BackwardHookCall;
  h->entry = &entry;
  h->number = number;
  h->hands_on = HandsOn(entry, args, output);
  h->generation = session().generation;
  const Ref handle =
      Ref::Steal(PyObject_CallMethodOneArg(node.get(), torch.s_register_hook, hook.get()));
  if (!handle) ReportPythonFailure("hooking the backward of an API");
}

// backward_layout "arguments": one gradient per argument, whatever nodes the call is made of.
struct Values {
  PyObject *args, *kwargs, *output;
};
void HookArguments(const ApiEntry& entry, int64_t number, const Values& call,
                   std::unique_ptr<BackwardRegion> region) {
  if (entry.dropout && DropsNothing(call.args, call.kwargs)) return;
  if (!session().collector->ApiPasses(entry.id, number, collect::Direction::kBackward)) return;
  EndRegion(std::move(region), call.output, {entry.id, number, true}, nullptr);
}

// ---- asynchronous collectives
// --------------------------------------------------------------------------------------------------

struct Waiting {
  std::unique_ptr<EntryBuilder> builder;
  const ApiEntry* entry;
  uint64_t generation;
  Ref args, kwargs;
  std::vector<Ref> handles;  // not yet waited for
};

std::vector<std::unique_ptr<Waiting>>& waiting() {
  static auto* const list = new std::vector<std::unique_ptr<Waiting>>;
  return *list;
}

void Finish(Waiting& w) {
  if (w.generation == session().generation) {
    Describer(*w.builder).ArgumentsAsOutput(w.args.get(), w.kwargs.get(), w.entry->output_mask);
    CommitEntry(std::move(w.builder));
  } else {
    DiscardEntry(std::move(w.builder));
  }
}

bool IsHandle(PyObject* object) {
  const Ref wait = Ref::Steal(PyObject_GetAttrString(object, "wait"));
  if (!wait) ClearError();
  return static_cast<bool>(wait);
}

// Takes the builder over when the result holds handles to wait for.
bool Postpone(const ApiEntry& entry, std::unique_ptr<EntryBuilder>& builder, PyObject* args,
              PyObject* kwargs, PyObject* result) {
  std::vector<Ref> handles;
  if (PyList_Check(result)) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(result); ++i) {
      if (IsHandle(PyList_GET_ITEM(result, i)))
        handles.push_back(Ref::Borrow(PyList_GET_ITEM(result, i)));
    }
  } else if (result != Py_None && !PyObject_TypeCheck(result, torch_objects().tensor) &&
             IsHandle(result)) {
    handles.push_back(Ref::Borrow(result));
  }
  if (handles.empty()) return false;
  waiting().push_back(std::make_unique<Waiting>(Waiting{std::move(builder), &entry,
                                                        session().generation, Ref::Borrow(args),
                                                        Ref::Borrow(kwargs), std::move(handles)}));
  return true;
}

// What is looked at before a call to tell what it did.
struct Before {
  Versions versions;
  RandomState random;
};

void DescribeInputs(const ApiEntry& entry, EntryBuilder& builder, PyObject* args, PyObject* kwargs,
                    Before& before) {
  Describer describe(builder);
  describe.Positional(args, entry.input_mask);
  describe.Keywords(kwargs, entry.input_mask);
  if (!entry.qualified.empty()) builder.Extra("qualified", "\"" + entry.qualified + "\"");
  const Session& s = session();
  if (s.evidence) {
    NoteAutocast(builder);
    before.versions.Add(args, entry.writes_silently);
    before.versions.Add(kwargs, entry.writes_silently);
  }
  if (s.random) before.random.Take(kwargs);
}

void AfterCall(const ApiEntry& entry, std::unique_ptr<EntryBuilder> builder, PyObject* args,
               PyObject* kwargs, PyObject* output, const Before& before) {
  NoteRecompute(*builder);
  before.random.Note(*builder);
  if (entry.collective) {
    if (Postpone(entry, builder, args, kwargs, output)) return;
    Describer(*builder).ArgumentsAsOutput(args, kwargs, entry.output_mask);
  } else {
    Describer(*builder).Output(output, entry.output_mask);
    before.versions.DescribeMutated(*builder, {args, kwargs, nullptr, output});
  }
  CommitEntry(std::move(builder));
}

}  // namespace

const ApiEntry* FindApi(PyObject* function) {
  const auto& map = table().by_function;
  const auto it = map.find(function);
  return it == map.end() ? nullptr : it->second;
}

ApiEntry* AddApi(std::string prefix, std::string name, std::string qualified, collect::Risk risk) {
  auto& slot = table().by_name[prefix + "." + name + " " + qualified];
  if (slot == nullptr) {
    slot = std::make_unique<ApiEntry>();
    slot->prefix = std::move(prefix);
    slot->name = std::move(name);
    slot->qualified = std::move(qualified);
    slot->risk = risk;
    // Their schemas do not say that running statistics are written.
    slot->writes_silently = slot->name.find("batch_norm") != std::string::npos ||
                            slot->name.find("instance_norm") != std::string::npos;
    static constexpr std::string_view kCasts[] = {"to",     "float",    "half",
                                                  "double", "bfloat16", "type_as"};
    slot->casts = std::find(std::begin(kCasts), std::end(kCasts), slot->name) != std::end(kCasts);
    if (session().collector != nullptr) {
      slot->id = session().collector->RegisterApi(slot->prefix, slot->name, slot->risk);
    }
  }
  return slot.get();
}

void BindApi(PyObject* function, ApiEntry* entry) {
  if (table().by_function.emplace(function, entry).second) Py_INCREF(function);
}

ApiEntry* AddTransparent(PyObject* function, PyObject* body_clone) {
  auto entry = std::make_unique<ApiEntry>();
  Py_INCREF(body_clone);
  entry->body_clone = body_clone;
  BindApi(function, entry.get());
  table().transparent.push_back(std::move(entry));
  return table().transparent.back().get();
}

void RegisterApis(collect::Collector& collector) {
  for (auto& [name, entry] : table().by_name) {
    entry->id = collector.RegisterApi(entry->prefix, entry->name, entry->risk);
  }
}

PyObject* RecordCall(const ApiEntry& entry, PyObject* function, PyObject* callable, PyObject* args,
                     PyObject* kwargs) {
  const Session& s = session();
  ThreadState& ts = thread_state();
  const DepthGuard api(ts.api_depth);
  const uint64_t generation = s.generation;
  int64_t number = -1;
  std::unique_ptr<EntryBuilder> builder;
  Before before;
  std::unique_ptr<BackwardRegion> region;
  {
    const DepthGuard tool(ts.tool_depth);
    const Quiet quiet;
    builder = s.collector->BeginApi(entry.id, CurrentStack(function), &number);
    if (builder != nullptr) {
      DescribeInputs(entry, *builder, args, kwargs, before);
    }
    if (s.backward && s.arguments) region = BeginApiRegion(args, kwargs);
    ClearError();
  }
  PyObject* const output = PyObject_Call(callable, args, kwargs);
  const PendingError hold;
  const bool same_step = generation == s.generation;
  if (output == nullptr || !same_step) {
    if (builder != nullptr) {
      DiscardEntry(std::move(builder));
    } else if (same_step) {
      s.collector->AbandonApi(entry.id, number);
    }
    return output;
  }
  const DepthGuard tool(ts.tool_depth);
  const Quiet quiet;
  if (builder != nullptr) {
    AfterCall(entry, std::move(builder), args, kwargs, output, before);
  }
  if (region != nullptr) {
    HookArguments(entry, number, {args, kwargs, output}, std::move(region));
  } else if (s.backward) {
    HookBackward(entry, number, args, kwargs, output);
  }
  ClearError();
  return output;
}

void CollectiveDone(PyObject* handle) {
  auto& list = waiting();
  if (list.empty()) return;
  const DepthGuard tool(thread_state().tool_depth);
  const Quiet quiet;
  for (size_t i = 0; i < list.size();) {
    std::erase_if(list[i]->handles, [&](const Ref& h) { return h.get() == handle; });
    if (!list[i]->handles.empty()) {
      ++i;
      continue;
    }
    const std::unique_ptr<Waiting> done = std::move(list[i]);
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
    Finish(*done);
  }
}

void FlushCollectives() {
  auto list = std::move(waiting());
  waiting().clear();
  const DepthGuard tool(thread_state().tool_depth);
  const Quiet quiet;
  for (const auto& w : list) Finish(*w);
}

bool InitApi() {
  MakeCallable(backward_hook_type, "msprobe._core.capture.BackwardHook", sizeof(BackwardHook),
               offsetof(BackwardHook, call), 0,
               [](PyObject* self) { Py_TYPE(self)->tp_free(self); });
  return PyType_Ready(&backward_hook_type) == 0;
}

}  // namespace msprobe::capture
