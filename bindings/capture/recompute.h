// Checkpointed regions: which entry a recomputed call repeats (decisions.md 17).
#pragma once

#include <cstdint>

#include "bindings/capture/py.h"
#include "collect/collector.h"

namespace msprobe::capture {

// A capsule for one call of torch.utils.checkpoint.checkpoint. New reference, or nullptr with a
// Python error set.
PyObject* NewRegion();
// The region's function begins or ends on this thread. Its first run is the forward, every later
// one a recomputation. False with a Python error set.
bool EnterRegion(PyObject* region);
void LeaveRegion();

// Before an entry of a forward call is committed: remembers its name for the regions that run for
// the first time, and says which entry it repeats when a region is recomputed.
void NoteRecompute(collect::EntryBuilder& builder);

}  // namespace msprobe::capture
