// Accelerator tensors: when one is described, reductions are queued on its device (statistics), or
// a copy into page-locked host memory (checksums, hashes, files); nothing waits for the device. The
// results are fetched in batches, and entries wait for them in order.
#pragma once

#include <memory>

#include "bindings/capture/py.h"
#include "collect/collector.h"

namespace msprobe::capture {

// Describes a plain tensor by what its device is to compute or copy, at the builder's current
// position. False: not by this way (host memory, a kind without reductions, or an entry that cannot
// wait); nothing was written.
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
