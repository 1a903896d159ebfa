#include "bindings/capture/device.h"

#include <deque>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/capture/describe.h"
#include "bindings/capture/evidence.h"
#include "bindings/capture/state.h"

namespace msprobe::capture {
namespace {

using collect::Deferral;
using collect::EntryBuilder;
using collect::TensorLeaf;
using metrics::TensorStats;

// What may wait before it is fetched: results, and bytes of copies.
constexpr size_t kBatch = 512;
constexpr size_t kBatchBytes = size_t{256} << 20;

// A leaf that waits: its number in the entry, and what its device was asked for (reductions, or a
// tensor in host memory that is being filled).
struct Waiting {
  uint32_t number = 0;
  Ref result;
};

struct ParameterGradient {
  uint32_t module = 0;
  Ref name;  // a str
  std::string dtype, from;
  std::vector<int64_t> shape;
  Ref result;
};

struct Item {
  std::unique_ptr<EntryBuilder> builder;  // null: a parameter's gradient
  std::vector<Waiting> waiting;
  std::unique_ptr<ParameterGradient> gradient;
};

struct Queue {
  std::unordered_map<EntryBuilder*, std::vector<Waiting>> open;  // being described
  std::deque<Item> items;
  size_t results = 0, bytes = 0;  // asked for since the last fetch
  bool fetching = false;          // some thread is at it
};

Queue& queue() {
  static auto* const q = new Queue;
  return *q;
}

// What the helper says of a tensor: (dtype, shape, requires_grad, bytes, result) or None.
struct Asked {
  std::string dtype;
  std::vector<int64_t> shape;
  bool requires_grad = false;
  Ref result;

  bool Take(PyObject* tensor, Deferral deferral) {
    const Torch& torch = torch_objects();
    PyObject* const helper = deferral == Deferral::kElements ? torch.copy : torch.reduce;
    const Ref answer = Ref::Steal(PyObject_CallOneArg(helper, tensor));
    if (!answer) {
      ReportPythonFailure("asking a device for a tensor");
      return false;
    }
    PyObject *name = nullptr, *extents = nullptr, *asked = nullptr;
    int needs = 0;
    Py_ssize_t bytes = 0;
    if (answer.get() == Py_None || PyArg_ParseTuple(answer.get(), "UO!pnO", &name, &PyTuple_Type,
                                                    &extents, &needs, &bytes, &asked) == 0) {
      ClearError();
      return false;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(extents); ++i) {
      shape.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(extents, i)));
    }
    ClearError();
    dtype = Utf8(name).view();
    requires_grad = needs != 0;
    result = Ref::Borrow(asked);
    ++queue().results;
    queue().bytes += static_cast<size_t>(bytes);
    return true;
  }
};

bool OnDevice(PyObject* tensor) {
  const Session& s = session();
  if (!s.device) return false;
  const Torch& torch = torch_objects();
  if (Py_TYPE(tensor) != torch.tensor && Py_TYPE(tensor) != torch.parameter) return false;
  if (s.device_force) return true;
  const Ref host = Ref::Steal(PyObject_GetAttr(tensor, torch.s_is_cpu));
  if (!host) ClearError();
  return host.get() == Py_False;
}

metrics::Number NumberOf(PyObject* value) {
  if (PyBool_Check(value)) return value == Py_True;
  if (PyLong_Check(value)) return static_cast<int64_t>(PyLong_AsLongLong(value));
  if (PyFloat_Check(value)) return PyFloat_AS_DOUBLE(value);
  return {};
}

// (max, min, mean, norm, nan, inf, finite max, finite min), None for what there is not.
TensorStats StatsOf(PyObject* tuple) {
  TensorStats stats;
  if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != 8) return stats;
  stats.max = NumberOf(PyTuple_GET_ITEM(tuple, 0));
  stats.min = NumberOf(PyTuple_GET_ITEM(tuple, 1));
  stats.mean = NumberOf(PyTuple_GET_ITEM(tuple, 2));
  stats.norm = NumberOf(PyTuple_GET_ITEM(tuple, 3));
  stats.nan = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(tuple, 4));
  stats.inf = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(tuple, 5));
  stats.finite_max = NumberOf(PyTuple_GET_ITEM(tuple, 6));
  stats.finite_min = NumberOf(PyTuple_GET_ITEM(tuple, 7));
  return stats;
}

// What was asked for, by what it was asked with: a tuple of statistics, or memory that the host can
// read now. Empty when fetching failed.
std::unordered_map<PyObject*, Ref> Fetch(const std::vector<PyObject*>& asked) {
  std::unordered_map<PyObject*, Ref> found;
  if (asked.empty()) return found;
  const Ref list = Ref::Steal(PyList_New(static_cast<Py_ssize_t>(asked.size())));
  for (size_t i = 0; list && i < asked.size(); ++i) {
    Py_INCREF(asked[i]);
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), asked[i]);
  }
  const Ref answers =
      Ref::Steal(list ? PyObject_CallOneArg(torch_objects().fetch, list.get()) : nullptr);
  if (!answers || !PyList_Check(answers.get()) ||
      static_cast<size_t>(PyList_GET_SIZE(answers.get())) != asked.size()) {
    ReportPythonFailure("fetching from a device");
    return found;
  }
  for (size_t i = 0; i < asked.size(); ++i) {
    found.emplace(asked[i],
                  Ref::Borrow(PyList_GET_ITEM(answers.get(), static_cast<Py_ssize_t>(i))));
  }
  return found;
}

bool IsStatistics(PyObject* answer) {
  return PyTuple_Check(answer) && PyTuple_GET_SIZE(answer) == 8;
}

void SettleLeaf(EntryBuilder& builder, uint32_t number, PyObject* answer) {
  if (IsStatistics(answer)) {
    builder.Settle(number, StatsOf(answer));
    ClearError();
    return;
  }
  HostMemory memory;
  if (memory.Take(answer)) builder.Settle(number, memory.view());
}

void WriteGradient(const ParameterGradient& gradient, PyObject* answer) {
  session().collector->ParameterGrad(gradient.module, Utf8(gradient.name.get()).view(),
                                     [&](EntryBuilder& builder) {
                                       TensorLeaf leaf;
                                       leaf.dtype_text = gradient.dtype;
                                       leaf.shape = gradient.shape;
                                       leaf.from_json = gradient.from;
                                       TensorStats stats;
                                       HostMemory memory;
                                       if (answer == nullptr || IsStatistics(answer)) {
                                         if (answer != nullptr) stats = StatsOf(answer);
                                         leaf.statistics = &stats;
                                       } else if (memory.Take(answer)) {
                                         leaf.view = &memory.view();
                                       }
                                       ClearError();
                                       builder.Tensor(leaf);
                                     });
}

void FlushIfFull() {
  const Queue& q = queue();
  if (q.results >= kBatch || q.bytes >= kBatchBytes) FlushDeferred();
}

}  // namespace

bool DeferTensor(EntryBuilder& builder, PyObject* tensor, bool produces) {
  if (!OnDevice(tensor)) return false;
  const Deferral deferral = builder.CanDefer();
  Asked asked;
  if (deferral == Deferral::kNone || !asked.Take(tensor, deferral)) return false;
  TensorLeaf leaf;
  leaf.dtype_text = asked.dtype;
  leaf.shape = asked.shape;
  leaf.requires_grad = asked.requires_grad;
  TensorView view;
  if (session().memory && ViewOfAnyDevice(tensor, view)) {
    leaf.memory = MemoryOf(tensor, view, produces);
  }
  leaf.from_json = DerivedText(tensor, leaf, produces);
  const uint32_t number = builder.DeferredTensor(leaf);
  if (number != UINT32_MAX) queue().open[&builder].push_back({number, std::move(asked.result)});
  return true;
}

void CommitEntry(std::unique_ptr<EntryBuilder> builder) {
  if (builder == nullptr) return;
  Queue& q = queue();
  const auto it = q.open.find(builder.get());
  if (it == q.open.end() && q.items.empty() && !q.fetching) {
    builder->Commit();
    return;
  }
  Item item;
  if (it != q.open.end()) {
    item.waiting = std::move(it->second);
    q.open.erase(it);
  }
  item.builder = std::move(builder);
  q.items.push_back(std::move(item));
  FlushIfFull();
}

void DiscardEntry(std::unique_ptr<EntryBuilder> builder) {
  if (builder == nullptr) return;
  queue().open.erase(builder.get());
  builder->Discard();
}

bool DeferParameterGrad(uint32_t module, PyObject* parameter, PyObject* gradient) {
  if (!OnDevice(gradient)) return false;
  const Deferral deferral = session().collector->defers_parameter_grads();
  Asked asked;
  if (deferral == Deferral::kNone || !asked.Take(gradient, deferral)) return false;
  Item item;
  item.gradient = std::make_unique<ParameterGradient>();
  item.gradient->module = module;
  item.gradient->name = Ref::Borrow(parameter);
  item.gradient->dtype = asked.dtype;
  item.gradient->shape = asked.shape;
  item.gradient->result = std::move(asked.result);
  TensorView view;
  if (session().memory && ViewOfAnyDevice(gradient, view)) {
    item.gradient->from =
        session().collector->OriginText(MemoryOf(gradient, view, false), asked.shape);
  }
  queue().items.push_back(std::move(item));
  FlushIfFull();
  return true;
}

void FlushDeferred() {
  Queue& q = queue();
  if (q.items.empty() && q.open.empty()) return;
  std::deque<Item> items = std::move(q.items);
  q.items.clear();
  q.results = q.bytes = 0;
  // Leaves of entries that are still being described get theirs, too: copies do not wait for the
  // end of an outer module.
  std::vector<PyObject*> asked;
  for (const Item& item : items) {
    if (item.gradient != nullptr) asked.push_back(item.gradient->result.get());
    for (const Waiting& w : item.waiting) asked.push_back(w.result.get());
  }
  std::vector<Ref> held;  // an entry may end while other threads run
  for (const auto& [builder, waiting] : q.open) {
    for (const Waiting& w : waiting) held.push_back(Ref::Borrow(w.result.get()));
  }
  for (const Ref& result : held) asked.push_back(result.get());
  q.fetching = true;
  const std::unordered_map<PyObject*, Ref> found = Fetch(asked);
  q.fetching = false;
  const auto answer_of = [&](const Ref& result) {
    const auto it = found.find(result.get());
    return it == found.end() ? nullptr : it->second.get();
  };
  const auto settle = [&](EntryBuilder& builder, std::vector<Waiting>& waiting) {
    std::erase_if(waiting, [&](const Waiting& w) {
      PyObject* const answer = answer_of(w.result);
      if (answer != nullptr) SettleLeaf(builder, w.number, answer);
      return answer != nullptr;
    });
  };
  for (Item& item : items) {
    if (item.gradient != nullptr) {
      WriteGradient(*item.gradient, answer_of(item.gradient->result));
      continue;
    }
    settle(*item.builder, item.waiting);
    item.builder->Commit();
  }
  for (auto& [builder, waiting] : q.open) settle(*builder, waiting);
}

}  // namespace msprobe::capture
