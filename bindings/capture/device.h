// Statistics of accelerator tensors: reductions are queued on the device when a tensor is
// described, their results stay there and are fetched in batches; entries wait for them in order.
#pragma once

#include <memory>

#include "bindings/capture/py.h"
#include "collect/collector.h"

namespace msprobe::capture {

// Describes a plain tensor by reductions on its device, at the builder's current position. False:
// not by this way (host memory, a kind without reductions, or an entry that cannot wait); nothing
// was written.
bool DeferTensor(collect::EntryBuilder& builder, PyObject* tensor, bool produces);

// Commits an entry, after those that came before it: at once, or when what they wait for was
// fetched.
void CommitEntry(std::unique_ptr<collect::EntryBuilder> builder);
void DiscardEntry(std::unique_ptr<collect::EntryBuilder> builder);

// The gradient of a parameter, in the same way. False: describe it in place.
bool DeferParameterGrad(uint32_t module, PyObject* parameter, PyObject* gradient);

// Fetches what is queued and commits the entries.
void FlushDeferred();

}  // namespace msprobe::capture
