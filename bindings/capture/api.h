// Recording one API call: inputs before, output after, and the hook for its backward.
#pragma once

#include <cstdint>
#include <string>

#include "bindings/capture/describe.h"
#include "bindings/capture/py.h"
#include "bindings/capture/state.h"

namespace msprobe::capture {

// One listed name. Lives as long as the process.
struct ApiEntry {
  uint32_t id = 0;  // of the collector in force; set when a session begins
  std::string prefix, name;
  collect::Risk risk = collect::Risk::kFocus;
  bool writes_silently = false;  // into arguments, past their version counters
  bool casts = false;            // hands its input on when there is nothing to convert
  bool dropout = false;          // no backward hook when its probability is 0 (dump.md 6.6)
  bool collective = false;       // output = the arguments, after the call (dump.md 6.7)
  bool asynchronous =
      false;  // isend, irecv, batch_isend_irecv: the result is a handle, or a list of them
  Mask input_mask, output_mask;
  std::string qualified;     // "torch.linalg.inv" of an API that is dumped as Torch.inv, else empty
  std::string mask_keyword;  // storage of input_mask.keyword
  // Not recorded, but transparent: this clone of its body runs with the mode on (capture.md 2).
  PyObject* body_clone = nullptr;
};

inline constexpr const char* kEntryCapsule = "msprobe.capture.entry";  // of entries in Python

// What to do with a function object that torch hands to the mode; nullptr: call through.
const ApiEntry* FindApi(PyObject* function);
// Creates the entry on first use. A `function` that already has an entry keeps it.
// Two functions may share a name (torch.norm, torch.linalg.norm): `qualified` tells them apart.
ApiEntry* AddApi(std::string prefix, std::string name, std::string qualified, collect::Risk risk);
void BindApi(PyObject* function, ApiEntry* entry);
ApiEntry* AddTransparent(PyObject* function, PyObject* body_clone);
// Gives every entry its number in the collector of the session.
void RegisterApis(collect::Collector& collector);

// Calls `callable(*args, **kwargs)` and records it as `entry`. `function` is the public function,
// for the stack. Errors of the call pass through; errors of ours do not.
PyObject* RecordCall(const ApiEntry& entry, PyObject* function, PyObject* callable, PyObject* args,
                     PyObject* kwargs);

// Describes the outputs of the asynchronous calls whose handle is `handle` once more and writes
// their entries.
void CollectiveDone(PyObject* handle);
// Writes the entries of asynchronous calls that nobody waited for.
void FlushCollectives();

bool InitApi();

}  // namespace msprobe::capture
