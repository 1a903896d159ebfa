// What the capture side knows for the whole process and per thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bindings/capture/dlpack_abi.h"
#include "bindings/capture/py.h"
#include "collect/collector.h"

namespace msprobe::capture {

struct ApiEntry;
struct ModuleFrame;

// A C getter of a torch.Tensor property, called without attribute look-up. Goes through torch's
// function modes when one is active, so a Quiet guard belongs around it.
class Getter {
 public:
  // Resolves `name` on the type; false with a Python error set when the type has no such attribute.
  bool Resolve(PyTypeObject* type, const char* name);
  PyObject* operator()(PyObject* object) const;  // new reference, or nullptr with a Python error

 private:
  getter fn_ = nullptr;
  void* closure_ = nullptr;
  PyObject* name_ = nullptr;  // when it is no C getter
};

// A C method of torch.Tensor without arguments.
class NoArgMethod {
 public:
  bool Resolve(PyTypeObject* type, const char* name);
  // 1, 0, or -1 with a Python error set.
  int Truth(PyObject* object) const;
  PyObject* Call(PyObject* object) const;  // new reference, or nullptr with a Python error

 private:
  PyCFunction fn_ = nullptr;
  PyObject* name_ = nullptr;
};

// Objects of torch that are looked up once. Strong references, held until the process ends.
struct Torch {
  bool ready = false;
  PyTypeObject* tensor = nullptr;
  PyTypeObject* parameter = nullptr;
  PyObject* push_mode = nullptr;
  PyObject* pop_mode = nullptr;
  PyObject* mode_count = nullptr;
  PyObject* all_disabled = nullptr;
  PyObject* disable = nullptr;  // the type torch._C.DisableTorchFunction
  PyObject* grad_enabled = nullptr;
  PyObject* has_torch_function[3] = {};
  // Python helpers for what is rare (python/msprobe/pytorch/_leaf.py).
  PyObject* plain_tensor = nullptr;
  PyObject* other_leaf = nullptr;
  PyObject* leaf_edge = nullptr;
  PyObject* add_gradients = nullptr;
  PyObject* next_sequence = nullptr;
  PyObject* getline = nullptr;
  // Evidence: () -> whether autocast is on, JSON of it, the states of the generators; and what
  // to say when they have changed.
  PyObject *any_autocast = nullptr, *autocast_text = nullptr, *random_state = nullptr,
           *random_text = nullptr;
  // (tensor) -> the address of its storage; an UntypedStorage to borrow one with, or None when the
  // storage's own Python object does no harm (python/msprobe/pytorch/_storage.py).
  PyObject *storage_address = nullptr, *storage_carrier = nullptr;
  // Of weak references to storages, as torch.UntypedStorage has them: (number) -> …
  PyObject *storage_expired = nullptr, *free_weak_ref = nullptr;
  // Of tensors on a device: reductions or a copy are queued, (tensor) -> (dtype, shape,
  // requires_grad, bytes, result) or None; (list of results) -> list of tuples of statistics and of
  // memory.
  PyObject *reduce = nullptr, *copy = nullptr, *fetch = nullptr;
  PyObject* every_entry = nullptr;  // (function) -> the entry of an unlisted one, or None
  PyObject* inert = nullptr;        // what our hooks become when they are pickled or copied
  PyTypeObject *size = nullptr, *dtype = nullptr, *device = nullptr, *memory_format = nullptr,
               *layout = nullptr;
  const dlpack::ExchangeApi* exchange = nullptr;
  Getter requires_grad, grad_fn, output_nr, grad, version;
  NoArgMethod is_neg, is_conj;
  // Interned names.
  PyObject *s_register_hook = nullptr, *s_register_prehook = nullptr, *s_next_functions = nullptr,
           *s_sequence_nr = nullptr, *s_parameters = nullptr, *s_grad_fn = nullptr,
           *s_enter = nullptr, *s_exit = nullptr, *s_fields = nullptr,
           *s_dataclass_fields = nullptr, *s_p = nullptr, *s_cdata = nullptr,
           *s_set_cdata = nullptr, *s_weak_ref = nullptr, *s_buffers = nullptr, *s_is_cpu = nullptr;
  std::string package_dir;  // frames from below it are ours
};
Torch& torch_objects();

// The running collection. `on` only between start and stop.
struct Session {
  collect::Collector* collector = nullptr;  // never freed while the process lives
  uint64_t generation = 0;  // changes at every step: hooks of an older one stay silent
  bool on = false;
  bool apis = false, modules = false, backward = false, stacks = false, parameters = false;
  bool device = false;        // statistics of accelerator tensors are computed there
  bool device_force = false;  // also those of tensors in host memory
  bool memory = false;        // leaves say which memory they are
  bool evidence = false;      // "mutated", "autocast"
  bool random = false;        // the states of random generators
  bool arguments = false;     // gradients of APIs by argument
  bool every = false;         // functions that no list names, too
};
Session& session();

struct ThreadState {
  int api_depth = 0;   // inside a recorded API
  int tool_depth = 0;  // inside code of ours
  // Set by an operator slot, consumed at the next dispatch. `noted` tells "operator that is not
  // recorded" from "no operator".
  const ApiEntry* operator_entry = nullptr;
  bool operator_noted = false;
  std::vector<std::unique_ptr<ModuleFrame>> modules;

  ThreadState();
  ~ThreadState();
};
ThreadState& thread_state();

class DepthGuard {
 public:
  explicit DepthGuard(int& depth) : depth_(depth) { ++depth_; }
  ~DepthGuard() { --depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  int& depth_;
};

// Number of function modes on this thread's stack.
long ModeCount();
bool GradEnabled();

// While it lives, reading properties of plain tensors reaches no function mode, ours or the user's.
class Quiet {
 public:
  Quiet();
  ~Quiet();
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;

 private:
  Ref popped_;    // the only mode on the stack
  Ref disabled_;  // the context manager, when there were several
};

// Tells the collector that something of ours failed; takes the pending Python error, if any, as the
// detail.
void ReportPythonFailure(const char* kind);
// Class name and text of the pending Python error, which is cleared. Empty when there is none.
std::string TakeErrorText();

// Looks everything up. `objects`: dict of the names above. False with a Python error set.
bool InitTorch(PyObject* objects);

}  // namespace msprobe::capture
