// Module level: hooks before and after each forward, the frame of a running forward, and parameter
// gradients.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "bindings/capture/evidence.h"
#include "bindings/capture/module_backward.h"
#include "bindings/capture/py.h"
#include "collect/collector.h"

namespace msprobe::capture {

// One running forward call of a hooked module, on the stack of its thread.
struct ModuleFrame {
  uint32_t module = 0;
  uint64_t generation = 0;
  collect::Collector::ModuleCall call;
  std::unique_ptr<collect::EntryBuilder> builder;  // null: filtered
  Ref handled_error;                       // the exception that was being handled when it began
  std::unique_ptr<BackwardRegion> region;  // null: no gradients, or none wanted
  Versions versions;                       // of arguments and buffers, before
};

bool InitModules();

// Hooks of one module. New references. `module` is the collector's number.
PyObject* NewPreHook(uint32_t module);
PyObject* NewPostHook(uint32_t module);
// A hook for register_post_accumulate_grad_hook of the parameter `name` of a module. `late`: it is
// for gradients that come between stop() and the end of the step, instead of those before.
PyObject* NewParameterHook(uint32_t module, PyObject* name, bool late);

// Whether a forward of this module was seen by its hooks since ForgetEntered().
bool WasEntered(uint32_t module);
void ForgetEntered();

// Closes the forwards that are still open on this thread (collection was stopped inside a module).
void DropThreadModules();

}  // namespace msprobe::capture
