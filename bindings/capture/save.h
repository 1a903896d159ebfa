// Level debug (dump.md 14.3): a variable that the script saves by name, and the gradients of its
// tensors.
#pragma once

#include <cstdint>
#include <optional>

#include "bindings/capture/py.h"

namespace msprobe::capture {

// Describes `variable` as the next `{name}.{k}.debug` and, with `gradients`, places one hook on
// every tensor inside that requires grad. `variable` is a tensor, a number, a str, or a list, tuple
// or dict of them, nested at most 400 deep. Returns a list of the handles of the hooks (they have
// to be removed when the step ends), or nullptr with a Python error set.
PyObject* SaveVariable(PyObject* variable, PyObject* name, std::optional<int64_t> rank,
                       bool gradients);

bool InitSave();

}  // namespace msprobe::capture
