// How calls reach us: the function mode, the operator slots, the hooks behind swapped code, and the
// has_torch_function that does not count our own mode (capture.md 1, 2, 4).
#pragma once

#include "bindings/capture/api.h"
#include "bindings/capture/py.h"

namespace msprobe::capture {

// Readies the types and adds `Mode` to the module. False with a Python error set.
bool InitMode(PyObject* module);

// A callable to put on torch.Tensor under an operator's name: notes `entry` (null: an operator that
// is not recorded) and calls `original`. New reference.
PyObject* NewOperatorSlot(PyObject* original, const ApiEntry* entry);

// A callable (args, kwargs) -> result for the trampoline of `function`, whose body is `body`. New
// reference.
PyObject* NewSwapHook(PyObject* function, PyObject* body, const ApiEntry* entry);

// A stand-in for one of torch.overrides' has_torch_function family. New reference.
PyObject* NewBlind(PyObject* original);

// The mode object whose handler is ours. Set once by the Python side.
void SetMode(PyObject* mode);
// Puts the mode on this thread's stack, above torch.device contexts and below every other mode;
// takes it off wherever it is.
bool PushMode();
bool RemoveMode();

}  // namespace msprobe::capture
