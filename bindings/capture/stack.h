// Call stacks: told apart by a hash of (code object, instruction offset) of every frame, rendered
// once.
#pragma once

#include "bindings/capture/py.h"
#include "collect/collector.h"

namespace msprobe::capture {

// The Python stack of this thread, innermost frame first, without frames of this package and
// without the frames through which torch led the call to us: leading frames of torch/overrides.py,
// and leading frames that run `callee`'s own code (the trampoline of a swapped function keeps file
// and name, but its code object is another). kNoStack when the session wants none.
collect::StackId CurrentStack(PyObject* callee);

// Code objects that stand in for a swapped function: frames that run them are ours.
void AddTrampolineCode(PyObject* code);

}  // namespace msprobe::capture
