// The capture side as the rest of the bindings sees it.
#pragma once

#include "bindings/capture/py.h"
#include "collect/collector.h"

namespace msprobe::capture {

// Adds the submodule `capture` to the extension module. False with a Python error set.
bool AddCaptureModule(PyObject* core);

// The session follows the life cycle of the collector (dump.md 5). The collector must live until
// the process ends.
void AttachCollector(
    collect::Collector& collector);  // its numbers for APIs and flags; not yet recording
// `unit`: only modules, whatever the level says (dump.md 2.3).
void BeginRecording(bool unit);
void EndRecording();    // before Collector::Stop: writes what is open
void BeforeStepEnds();  // before Collector::EndStep
void AfterStepEnded();  // hooks of the ended step fall silent
void DetachCollector();
void AfterForkInChild();

}  // namespace msprobe::capture
