#include "bindings/capture/module_backward.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string_view>
#include <unordered_set>

#include "bindings/capture/describe.h"
#include "bindings/capture/device.h"
#include "bindings/capture/state.h"

namespace msprobe::capture {
namespace {

using collect::Absent;
using collect::Part;

constexpr size_t kMaxNodes =
    200'000;  // walked for one module call; beyond: no gradients of its inputs

constexpr size_t kMaxVisited = 10'000;  // values of one call: shared lists can unfold without end

// Appends the tensors of `value` that require grad, flattened through lists, tuples and dicts.
// Borrowed references.
// NOLINTNEXTLINE(misc-no-recursion): the depth is bounded
void CollectTensors(PyObject* value, std::vector<PyObject*>& out, size_t& visited, int depth) {
  const Torch& torch = torch_objects();
  if (++visited > kMaxVisited) return;
  if (PyObject_TypeCheck(value, torch.tensor)) {
    const Ref needs = Ref::Steal(torch.requires_grad(value));
    if (!needs) ClearError();
    if (needs.get() == Py_True) out.push_back(value);
    return;
  }
  if (depth >= 100) return;
  if (PyTuple_Check(value) || PyList_Check(value)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i) {
      CollectTensors(PySequence_Fast_GET_ITEM(value, i), out, visited, depth + 1);
    }
  } else if (PyDict_Check(value)) {
    Py_ssize_t position = 0;
    PyObject *key = nullptr, *item = nullptr;
    while (PyDict_Next(value, &position, &key, &item) != 0) {
      CollectTensors(item, out, visited, depth + 1);
    }
  }
}

void CollectTensors(PyObject* value, std::vector<PyObject*>& out) {
  size_t visited = 0;
  CollectTensors(value, out, visited, 0);
}

uint32_t OutputNumber(PyObject* tensor) {
  const Ref number = Ref::Steal(torch_objects().output_nr(tensor));
  const long value = number ? PyLong_AsLong(number.get()) : 0;
  ClearError();
  return value < 0 ? 0 : static_cast<uint32_t>(value);
}

// The edge of a tensor that a graph node made. Empty node: a leaf, or an error (cleared).
Edge EdgeOf(PyObject* tensor) {
  Ref node = Ref::Steal(torch_objects().grad_fn(tensor));
  if (!node || node.get() == Py_None) {
    ClearError();
    return {};
  }
  return {std::move(node), OutputNumber(tensor)};
}

bool IsLeafNode(PyObject* node) {
  return std::string_view(Py_TYPE(node)->tp_name) == "AccumulateGrad";
}

uint64_t SequenceOf(PyObject* node) {
  const Ref number = Ref::Steal(PyObject_CallMethodNoArgs(node, torch_objects().s_sequence_nr));
  const uint64_t value = number ? PyLong_AsUnsignedLongLong(number.get()) : 0;
  ClearError();
  return value;
}

}  // namespace

// ---- the record of one call's gradients
// ------------------------------------------------------------------------------------------

// Shared by the hooks of one call. Gradients are held only until their part can be written.
class ModuleGradients : public std::enable_shared_from_this<ModuleGradients> {
 public:
  struct Slot {
    Ref gradient;
    uint32_t expected = 0;  // hooks that will report into it
    uint32_t arrived = 0;
    bool identity =
        false;  // the output is an input: its gradient cannot be told from that of other users
  };

  GradientOwner owner;
  ArgumentPlan plan;
  uint64_t generation = session().generation;
  std::vector<Slot> outputs, inputs;
  bool out_of_budget = false;

  ~ModuleGradients() {
    if (!begun_) return;
    const PendingError hold;
    Finish();
  }

  void OutputFired(PyObject* gradients, const std::vector<std::pair<uint32_t, uint32_t>>& slots);
  void BoundaryFired(PyObject* gradients, const std::vector<std::pair<uint32_t, uint32_t>>& slots);
  void Finish();
  bool begun() const { return begun_; }

 private:
  void Begin();
  void WriteInputs();
  void WritePart(Part part, std::vector<Slot>& slots);
  void WriteSlot(Describer& describe, Part part, const Slot& slot);
  static bool Complete(const std::vector<Slot>& slots) {
    return std::all_of(slots.begin(), slots.end(),
                       [](const Slot& s) { return s.arrived >= s.expected; });
  }

  std::unique_ptr<collect::EntryBuilder> builder_;
  bool begun_ = false, inputs_written_ = false;
};

namespace {

std::vector<std::weak_ptr<ModuleGradients>>& begun_records() {
  static auto* const list = new std::vector<std::weak_ptr<ModuleGradients>>;
  return *list;
}

PyObject* Item(PyObject* gradients, uint32_t slot) {
  if (!PyTuple_Check(gradients) || slot >= static_cast<size_t>(PyTuple_GET_SIZE(gradients)))
    return Py_None;
  return PyTuple_GET_ITEM(gradients, static_cast<Py_ssize_t>(slot));
}

}  // namespace

void ModuleGradients::Begin() {
  begun_ = true;
  inputs_written_ = false;
  begun_records().push_back(weak_from_this());
  collect::Collector& collector = *session().collector;
  if (owner.api) {
    builder_ = collector.BeginApiBackward(owner.id, owner.number);
    return;
  }
  collector.EnterModuleBackward(owner.id, owner.number);
  builder_ = collector.BeginModuleBackward(owner.id, owner.number);
}

void ModuleGradients::OutputFired(PyObject* gradients,
                                  const std::vector<std::pair<uint32_t, uint32_t>>& slots) {
  const bool again = std::any_of(slots.begin(), slots.end(),
                                 [&](const auto& s) { return outputs[s.second].arrived > 0; });
  if (begun_ && again) Finish();  // a second backward through the same graph overwrites
  if (!begun_) Begin();
  for (const auto& [nr, slot] : slots) {
    outputs[slot].arrived = 1;
    PyObject* const gradient = Item(gradients, nr);
    if (gradient != Py_None && !outputs[slot].identity)
      outputs[slot].gradient = Ref::Borrow(gradient);
  }
  if (Complete(outputs)) WriteInputs();
  const bool waits =
      std::any_of(inputs.begin(), inputs.end(), [](const Slot& s) { return s.expected > 0; });
  if (inputs_written_ && !waits) Finish();
}

void ModuleGradients::BoundaryFired(PyObject* gradients,
                                    const std::vector<std::pair<uint32_t, uint32_t>>& slots) {
  if (!begun_) return;  // gradients that reached the region from elsewhere
  for (const auto& [index, position] : slots) {
    Slot& slot = inputs[position];
    ++slot.arrived;
    PyObject* const gradient = Item(gradients, index);
    if (gradient == Py_None) continue;
    if (!slot.gradient) {
      slot.gradient = Ref::Borrow(gradient);
      continue;
    }
    Ref sum = Ref::Steal(PyObject_CallFunctionObjArgs(torch_objects().add_gradients,
                                                      slot.gradient.get(), gradient, nullptr));
    if (!sum) ReportPythonFailure("adding up the gradients of a module input");
    slot.gradient = std::move(sum);
  }
  if (Complete(inputs)) Finish();
}

void ModuleGradients::WriteSlot(Describer& describe, Part part, const Slot& slot) {
  if (slot.gradient) {
    describe.Value(slot.gradient.get());
  } else if (slot.identity) {
    builder_->AbsentLeaf(Absent::kUnsupported, owner.api ? "the call handed its input on"
                                                         : "the module handed its input on");
  } else if (out_of_budget && part == Part::kOutput) {
    builder_->AbsentLeaf(Absent::kOutOfBudget, "more than 200000 graph nodes inside the call");
  } else {
    builder_->Null();
  }
}

void ModuleGradients::WritePart(Part part, std::vector<Slot>& slots) {
  if (builder_ != nullptr) {
    builder_->BeginPart(part);
    builder_->OpenList();
    Describer describe(*builder_);
    if (part == Part::kOutput) describe.SetProduces();
    if (owner.api && part == Part::kOutput) {
      size_t next = 0;
      for (const ArgumentPlan::Step step : plan.steps) {
        if (step == ArgumentPlan::Step::kOpenList) {
          builder_->OpenList();
        } else if (step == ArgumentPlan::Step::kCloseList) {
          builder_->CloseList();
        } else if (step == ArgumentPlan::Step::kNull || next >= slots.size()) {
          builder_->Null();
        } else {
          WriteSlot(describe, part, slots[next++]);
        }
      }
    } else {
      for (const Slot& slot : slots) WriteSlot(describe, part, slot);
    }
    builder_->CloseList();
    builder_->EndPart();
  }
  for (Slot& slot : slots) {
    slot.gradient = Ref();
  }
}

void ModuleGradients::WriteInputs() {
  WritePart(Part::kInput, outputs);
  inputs_written_ = true;
}

void ModuleGradients::Finish() {
  if (!begun_) return;
  begun_ = false;
  std::erase_if(begun_records(), [&](const auto& weak) {
    const auto record = weak.lock();
    return record == nullptr || record.get() == this;
  });
  if (generation == session().generation && session().collector != nullptr) {
    const DepthGuard tool(thread_state().tool_depth);
    const Quiet quiet;
    if (!inputs_written_) WriteInputs();
    WritePart(Part::kOutput, inputs);
    if (builder_ != nullptr) {
      if (owner.api) builder_->Extra("layout", "\"arguments\"");
      CommitEntry(std::move(builder_));
    }
    if (!owner.api) session().collector->LeaveModuleBackward(owner.id, owner.number);
  } else if (builder_ != nullptr) {
    DiscardEntry(std::move(builder_));
  }
  builder_.reset();
  for (auto* slots : {&outputs, &inputs}) {
    for (Slot& slot : *slots) {
      slot.gradient = Ref();
      slot.arrived = 0;
    }
  }
}

void FlushModuleGradients() {
  const auto records = begun_records();
  for (size_t i = records.size(); i-- > 0;) {  // innermost first
    if (const auto record = records[i].lock()) record->Finish();
  }
  begun_records().clear();
}

// ---- hooks
// ---------------------------------------------------------------------------------------------------------------------

namespace {

struct GradientHook {
  PyObject_HEAD vectorcallfunc call;
  std::shared_ptr<ModuleGradients>* record;
  std::vector<std::pair<uint32_t, uint32_t>>*
      slots;  // (index in the node's tuple, slot of the record)
};

PyTypeObject gradient_hook_type;

bool Active(const GradientHook& hook) {
  const Session& s = session();
  return s.collector != nullptr && (*hook.record)->generation == s.generation &&
         thread_state().tool_depth == 0;
}

// Pre-hook of an output node: (gradients of its outputs) -> None
PyObject* OutputHookCall(PyObject* self, PyObject* const* args, size_t nargsf, PyObject*) {
  const auto* hook = reinterpret_cast<GradientHook*>(self);
  if (PyVectorcall_NARGS(nargsf) < 1 || !Active(*hook)) Py_RETURN_NONE;
  const DepthGuard tool(thread_state().tool_depth);
  const Quiet quiet;
  (*hook->record)->OutputFired(args[0], *hook->slots);
  ClearError();
  Py_RETURN_NONE;
}

// Post-hook of a boundary node: (gradients of its inputs, gradients of its outputs) -> None
PyObject* BoundaryHookCall(PyObject* self, PyObject* const* args, size_t nargsf, PyObject*) {
  const auto* hook = reinterpret_cast<GradientHook*>(self);
  if (PyVectorcall_NARGS(nargsf) < 2 || !Active(*hook)) Py_RETURN_NONE;
  const DepthGuard tool(thread_state().tool_depth);
  const Quiet quiet;
  (*hook->record)->BoundaryFired(args[0], *hook->slots);
  ClearError();
  Py_RETURN_NONE;
}

void GradientHookFree(PyObject* self) {
  auto* const hook = reinterpret_cast<GradientHook*>(self);
  delete hook->record;
  delete hook->slots;
  Py_TYPE(self)->tp_free(self);
}

using NodeSlots = std::vector<std::pair<Ref, std::vector<std::pair<uint32_t, uint32_t>>>>;

void Place(const NodeSlots& nodes, PyObject* method, vectorcallfunc call,
           const std::shared_ptr<ModuleGradients>& record) {
  for (const auto& [node, slots] : nodes) {
    auto* const hook = PyObject_New(GradientHook, &gradient_hook_type);
    if (hook == nullptr) break;
    hook->call = call;
    hook->record = new std::shared_ptr<ModuleGradients>(record);
    hook->slots = new std::vector<std::pair<uint32_t, uint32_t>>(slots);
    const Ref owner = Ref::Steal(reinterpret_cast<PyObject*>(hook));
    if (!Ref::Steal(PyObject_CallMethodOneArg(node.get(), method, owner.get()))) {
      ReportPythonFailure("hooking the backward of a module");
    }
  }
}

std::vector<std::pair<uint32_t, uint32_t>>& SlotsOf(NodeSlots& nodes, const Ref& node) {
  for (auto& [known, slots] : nodes) {
    if (known.get() == node.get()) return slots;
  }
  nodes.emplace_back(node, std::vector<std::pair<uint32_t, uint32_t>>());
  return nodes.back().second;
}

// ---- the walk from the outputs to the boundary
// ------------------------------------------------------------------------------------

class Walk {
 public:
  Walk(const BackwardRegion& region, ModuleGradients& record) : region_(region), record_(record) {}

  // False: out of budget; the hooks found so far are then not placed.
  bool From(const std::vector<Ref>& output_nodes) {
    for (const Ref& node : output_nodes) Push(node);
    while (!work_.empty()) {
      if (seen_.size() > kMaxNodes) return false;
      const Ref node = std::move(work_.back());
      work_.pop_back();
      const auto child = region_.children.find(node.get());
      if (child == region_.children.end()) {
        Expand(node);
      } else if (regions_.insert(child->second.get()).second) {
        for (const Exit& exit : *child->second) Follow(exit.from, exit.slot, exit.to);
      }
    }
    return true;
  }

  const NodeSlots& boundary() const { return boundary_; }
  std::vector<Exit> TakeExits() { return std::move(exits_); }

 private:
  void Push(const Ref& node) {
    if (seen_.insert(node.get()).second) {
      held_.push_back(node);
      work_.push_back(node);
    }
  }

  void Expand(const Ref& node) {
    const Ref next = Ref::Steal(PyObject_GetAttr(node.get(), torch_objects().s_next_functions));
    if (!next || !PyTuple_Check(next.get())) {
      ClearError();
      return;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(next.get()); ++i) {
      PyObject* const pair = PyTuple_GET_ITEM(next.get(), i);
      if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) continue;
      PyObject* const target = PyTuple_GET_ITEM(pair, 0);
      if (target == Py_None) continue;
      const long nr = PyLong_AsLong(PyTuple_GET_ITEM(pair, 1));
      Follow(node, static_cast<uint32_t>(i),
             {Ref::Borrow(target), static_cast<uint32_t>(nr < 0 ? 0 : nr)});
    }
  }

  // One edge: boundary, inside, or an exit towards what enclosing calls know.
  void Follow(const Ref& from, uint32_t slot, const Edge& to) {
    bool wanted = false;
    for (uint32_t i = 0; i < region_.inputs.size(); ++i) {
      const Edge& input = region_.inputs[i];
      if (input.node.get() != to.node.get() || input.number != to.number) continue;
      wanted = true;
      if (!reported_.emplace(from.get(), slot, i).second) continue;
      held_.push_back(from);
      SlotsOf(boundary_, from).emplace_back(slot, i);
      ++record_.inputs[i].expected;
    }
    const bool leaf = IsLeafNode(to.node.get());
    if (!wanted && !leaf && SequenceOf(to.node.get()) >= region_.first_sequence) {
      Push(to.node);
      return;
    }
    if (leaf && !region_.keeps_leaves) return;
    exits_.push_back({from, slot, to});
  }

  const BackwardRegion& region_;
  ModuleGradients& record_;
  std::unordered_set<PyObject*> seen_;
  std::unordered_set<const void*> regions_;
  std::set<std::tuple<PyObject*, uint32_t, uint32_t>> reported_;
  std::vector<Ref> held_, work_;
  NodeSlots boundary_;
  std::vector<Exit> exits_;
};

// Output nodes with their slots. An output that is an input is marked: its node tells when
// gradients flow, not this call's share.
NodeSlots OutputNodes(const std::vector<PyObject*>& tensors, const BackwardRegion& region,
                      ModuleGradients& record) {
  NodeSlots nodes;
  for (uint32_t k = 0; k < tensors.size(); ++k) {
    const Edge edge = EdgeOf(tensors[k]);
    if (!edge.node) {  // a leaf: a parameter that the module returns
      record.outputs[k].identity = true;
      continue;
    }
    for (size_t i = 0; i < region.inputs.size(); ++i) {
      const Edge& in = region.inputs[i];
      if (in.node.get() != edge.node.get() || in.number != edge.number) continue;
      record.outputs[k].identity = record.inputs[i].identity = true;
    }
    record.outputs[k].expected = 1;
    SlotsOf(nodes, edge.node).emplace_back(edge.number, k);
  }
  return nodes;
}

}  // namespace

namespace {

// Reads the edges of `tensors` and the number of the next node into the region. False: it failed.
bool Prepare(BackwardRegion& region, const std::vector<PyObject*>& tensors) {
  const Torch& torch = torch_objects();
  for (PyObject* tensor : tensors) {
    Edge edge = EdgeOf(tensor);
    if (!edge.node) {
      edge.node = Ref::Steal(PyObject_CallOneArg(torch.leaf_edge, tensor));
      if (!edge.node) ClearError();
      region.keeps_leaves = true;
    }
    region.inputs.push_back(std::move(edge));
  }
  const Ref next = Ref::Steal(PyObject_CallNoArgs(torch.next_sequence));
  if (next.get() == Py_None) return false;  // inside torch.func there is no graph to read
  region.first_sequence = next ? PyLong_AsUnsignedLongLong(next.get()) : 0;
  if (PyErr_Occurred() == nullptr) return true;
  ReportPythonFailure("reading the sequence number of the graph");
  return false;
}

// One argument: a tensor that requires grad takes a slot, a list with such tensors keeps its shape.
void PlanValue(PyObject* value, ArgumentPlan& plan, std::vector<PyObject*>& tensors) {
  std::vector<PyObject*> inside;
  CollectTensors(value, inside);
  if (inside.empty()) {
    plan.steps.push_back(ArgumentPlan::Step::kNull);
    return;
  }
  if (PyObject_TypeCheck(value, torch_objects().tensor)) {
    plan.steps.push_back(ArgumentPlan::Step::kGradient);
    tensors.push_back(value);
    return;
  }
  plan.steps.push_back(ArgumentPlan::Step::kOpenList);
  if (PyTuple_Check(value) || PyList_Check(value)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i) {
      PyObject* const item = PySequence_Fast_GET_ITEM(value, i);
      const bool tensor = std::find(inside.begin(), inside.end(), item) != inside.end();
      plan.steps.push_back(tensor ? ArgumentPlan::Step::kGradient : ArgumentPlan::Step::kNull);
      if (tensor) tensors.push_back(item);
    }
  } else {  // a dict: in the order of its tensors
    for (PyObject* tensor : inside) {
      plan.steps.push_back(ArgumentPlan::Step::kGradient);
      tensors.push_back(tensor);
    }
  }
  plan.steps.push_back(ArgumentPlan::Step::kCloseList);
}

}  // namespace

std::unique_ptr<BackwardRegion> BeginRegion(PyObject* args, const BackwardRegion* parent) {
  if (!GradEnabled()) return nullptr;
  auto region = std::make_unique<BackwardRegion>();
  region->keeps_leaves = parent != nullptr && parent->keeps_leaves;
  std::vector<PyObject*> tensors;
  CollectTensors(args, tensors);
  if (!Prepare(*region, tensors)) return nullptr;
  return region;
}

std::unique_ptr<BackwardRegion> BeginApiRegion(PyObject* args, PyObject* kwargs) {
  if (!GradEnabled()) return nullptr;
  auto region = std::make_unique<BackwardRegion>();
  std::vector<PyObject*> tensors;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) {
    PlanValue(PyTuple_GET_ITEM(args, i), region->plan, tensors);
  }
  Py_ssize_t position = 0;
  PyObject *key = nullptr, *value = nullptr;
  while (kwargs != nullptr && PyDict_Next(kwargs, &position, &key, &value) != 0) {
    PlanValue(value, region->plan, tensors);
  }
  if (!Prepare(*region, tensors)) return nullptr;
  return region;
}

void EndRegion(std::unique_ptr<BackwardRegion> region, PyObject* output, const GradientOwner& owner,
               BackwardRegion* parent) {
  const Torch& torch = torch_objects();
  std::vector<PyObject*> tensors;
  CollectTensors(output, tensors);
  if (tensors.empty()) return;
  const auto record = std::make_shared<ModuleGradients>();
  record->owner = owner;
  record->plan = std::move(region->plan);
  record->outputs.resize(tensors.size());
  record->inputs.resize(region->inputs.size());
  const NodeSlots outputs = OutputNodes(tensors, *region, *record);
  if (outputs.empty()) return;
  std::vector<Ref> nodes;  // where the walk begins
  for (const auto& [node, slots] : outputs) {
    const bool made_inside = std::any_of(slots.begin(), slots.end(), [&](const auto& slot) {
      return !record->outputs[slot.second].identity;
    });
    if (made_inside) nodes.push_back(node);
  }
  Walk walk(*region, *record);
  if (walk.From(nodes)) {
    Place(walk.boundary(), torch.s_register_hook, BoundaryHookCall, record);
  } else {
    record->out_of_budget = true;
    for (auto& slot : record->inputs) slot.expected = 0;
  }
  Place(outputs, torch.s_register_prehook, OutputHookCall, record);
  if (parent == nullptr || record->out_of_budget) return;
  const auto exits = std::make_shared<std::vector<Exit>>(walk.TakeExits());
  for (const Ref& node : nodes) {
    if (parent->children.emplace(node.get(), exits).second) parent->child_nodes.push_back(node);
  }
}

bool InitModuleBackward() {
  MakeCallable(gradient_hook_type, "msprobe._core.capture.GradientHook", sizeof(GradientHook),
               offsetof(GradientHook, call), 0, GradientHookFree);
  return PyType_Ready(&gradient_hook_type) == 0;
}

}  // namespace msprobe::capture
