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

using collect::EntryBuilder;
using collect::TensorLeaf;
using metrics::TensorStats;

constexpr size_t kBatch = 512;  // results on the device before they are fetched

// A leaf that waits: its number in the entry, and the place of its results in the batch.
struct Waiting {
  uint32_t number = 0;
  size_t result = 0;
};

struct ParameterGradient {
  uint32_t module = 0;
  Ref name;  // a str
  std::string dtype, from;
  std::vector<int64_t> shape;
  size_t result = 0;
};

struct Item {
  std::unique_ptr<EntryBuilder> builder;  // null: a parameter's gradient
  std::vector<Waiting> waiting;
  std::unique_ptr<ParameterGradient> gradient;
};

struct Queue {
  std::unordered_map<const EntryBuilder*, std::vector<Waiting>> open;  // being described
  std::deque<Item> items;
  Ref results;  // a list, of the next batch
  uint64_t generation = 0;
};

Queue& queue() {
  static auto* const q = new Queue;
  return *q;
}

// What the helper says of a tensor: (dtype, shape, requires_grad, results) or None.
struct Reduced {
  std::string dtype;
  std::vector<int64_t> shape;
  bool requires_grad = false;
  size_t result = 0;

  bool Take(PyObject* tensor) {
    const Ref answer = Ref::Steal(PyObject_CallOneArg(torch_objects().reduce, tensor));
    if (!answer) {
      ReportPythonFailure("reducing a tensor on its device");
      return false;
    }
    PyObject *name = nullptr, *extents = nullptr, *results = nullptr;
    int needs = 0;
    if (answer.get() == Py_None || PyArg_ParseTuple(answer.get(), "UO!pO", &name, &PyTuple_Type,
                                                    &extents, &needs, &results) == 0) {
      ClearError();
      return false;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(extents); ++i) {
      shape.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(extents, i)));
    }
    dtype = Utf8(name).view();
    requires_grad = needs != 0;
    Queue& q = queue();
    if (!q.results) q.results = Ref::Steal(PyList_New(0));
    if (!q.results || PyErr_Occurred() != nullptr || PyList_Append(q.results.get(), results) != 0) {
      ClearError();
      return false;
    }
    result = static_cast<size_t>(PyList_GET_SIZE(q.results.get())) - 1;
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

std::vector<TensorStats> Fetch(const Ref& results) {
  std::vector<TensorStats> found;
  if (!results) return found;
  const Ref fetched = Ref::Steal(PyObject_CallOneArg(torch_objects().fetch, results.get()));
  if (!fetched || !PyList_Check(fetched.get())) {
    ReportPythonFailure("fetching statistics from a device");
    return found;
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(fetched.get()); ++i) {
    found.push_back(StatsOf(PyList_GET_ITEM(fetched.get(), i)));
  }
  ClearError();
  return found;
}

void WriteGradient(const ParameterGradient& gradient, const TensorStats& stats) {
  session().collector->ParameterGrad(gradient.module, Utf8(gradient.name.get()).view(),
                                     [&](EntryBuilder& builder) {
                                       TensorLeaf leaf;
                                       leaf.dtype_text = gradient.dtype;
                                       leaf.shape = gradient.shape;
                                       leaf.statistics = &stats;
                                       leaf.from_json = gradient.from;
                                       builder.Tensor(leaf);
                                     });
}

void FlushIfFull() {
  Queue& q = queue();
  if (q.results && q.open.empty() &&
      static_cast<size_t>(PyList_GET_SIZE(q.results.get())) >= kBatch) {
    FlushDeferred();
  }
}

}  // namespace

bool DeferTensor(EntryBuilder& builder, PyObject* tensor, bool produces) {
  if (!OnDevice(tensor) || !builder.CanDefer()) return false;
  Reduced reduced;
  if (!reduced.Take(tensor)) return false;
  TensorLeaf leaf;
  leaf.dtype_text = reduced.dtype;
  leaf.shape = reduced.shape;
  leaf.requires_grad = reduced.requires_grad;
  TensorView view;
  if (session().memory && ViewOfAnyDevice(tensor, view)) {
    leaf.memory = MemoryOf(tensor, view, produces);
  }
  const uint32_t number = builder.DeferredTensor(leaf);
  if (number != UINT32_MAX) queue().open[&builder].push_back({number, reduced.result});
  return true;
}

void CommitEntry(std::unique_ptr<EntryBuilder> builder) {
  if (builder == nullptr) return;
  Queue& q = queue();
  const auto it = q.open.find(builder.get());
  if (it == q.open.end() && q.items.empty()) {
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
  if (!OnDevice(gradient) || !session().collector->defers_parameter_grads()) return false;
  Reduced reduced;
  if (!reduced.Take(gradient)) return false;
  Item item;
  item.gradient = std::make_unique<ParameterGradient>();
  item.gradient->module = module;
  item.gradient->name = Ref::Borrow(parameter);
  item.gradient->dtype = reduced.dtype;
  item.gradient->shape = reduced.shape;
  item.gradient->result = reduced.result;
  TensorView view;
  if (session().memory && ViewOfAnyDevice(gradient, view)) {
    item.gradient->from =
        session().collector->OriginText(MemoryOf(gradient, view, false), reduced.shape);
  }
  queue().items.push_back(std::move(item));
  FlushIfFull();
  return true;
}

void FlushDeferred() {
  Queue& q = queue();
  if (q.items.empty()) return;
  const Ref results = std::move(q.results);
  std::deque<Item> items = std::move(q.items);
  q.results = Ref();
  q.items.clear();
  // Entries that are still being described keep their results in the next batch.
  if (results && !q.open.empty()) {
    q.results = Ref::Steal(PyList_New(0));
    for (auto& [builder, waiting] : q.open) {
      for (Waiting& w : waiting) {
        PyList_Append(q.results.get(),
                      PyList_GET_ITEM(results.get(), static_cast<Py_ssize_t>(w.result)));
        w.result = static_cast<size_t>(PyList_GET_SIZE(q.results.get())) - 1;
      }
    }
  }
  const std::vector<TensorStats> stats = Fetch(results);
  const auto at = [&](size_t k) { return k < stats.size() ? stats[k] : TensorStats{}; };
  for (Item& item : items) {
    if (item.gradient != nullptr) {
      WriteGradient(*item.gradient, at(item.gradient->result));
      continue;
    }
    for (const Waiting& w : item.waiting) item.builder->Settle(w.number, at(w.result));
    item.builder->Commit();
  }
}

}  // namespace msprobe::capture
