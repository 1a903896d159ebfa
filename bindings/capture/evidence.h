// What an entry says beyond the values of its leaves: which memory they are, what a call changed in
// place, autocast, and the state of random generators.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/capture/py.h"
#include "collect/collector.h"
#include "tensor/view.h"

namespace msprobe::capture {

// The storage of a plain tensor whose memory is `view`. `produce`: the tensor is the result of a
// recorded call, so its storage is to be known from now on; otherwise only a storage that is known
// has a number. Storages are held weakly: their memory is freed as it would be without us.
collect::MemoryId MemoryOf(PyObject* tensor, const TensorView& view, bool produce);
// `"derived": true` of an argument that requires a gradient, has one to hand on and is not in the
// memory of a recorded result: code that is not recorded made it of something else (indexing,
// reshape). A parameter is none. Else empty.
std::string_view DerivedText(PyObject* tensor, const collect::TensorLeaf& leaf, bool produce);
// Forgets storages whose memory is gone; `all`: every storage.
void ForgetStorages(bool all);

// The version counters of the tensors among the arguments of a call, before it.
class Versions {
 public:
  // Appends the tensors of `value`, through lists, tuples and dicts. `silent`: they may be written
  // without the counter (running statistics of batch_norm), so small ones are hashed as well.
  void Add(PyObject* value, bool silent, int depth = 0);
  // After the call: describes as part "mutated" what was written into, by position ("input.0",
  // "kwargs.out", "buffers.running_mean"). A tensor that is `output`, or an element of it, is
  // `{"same_as": "output.0"}`.
  struct Call {
    PyObject* args = nullptr;
    PyObject* kwargs = nullptr;
    PyObject* buffers = nullptr;  // a module's own, or null
    PyObject* output = nullptr;
  };
  void DescribeMutated(collect::EntryBuilder& builder, const Call& call) const;

 private:
  struct Tensor {
    PyObject* object = nullptr;  // borrowed
    int64_t version = 0;
    std::optional<uint64_t> hash;
  };
  static bool IsChanged(const Tensor& before);

  std::vector<Tensor> before_;
  size_t visited_ = 0;  // values looked at: a few shared lists can unfold without end
};

// Adds "autocast": {"cpu": "torch.bfloat16"} while it is on.
void NoteAutocast(collect::EntryBuilder& builder);

// Evidence "full": the state of the random generators before a call, and what to say about it once
// the call has changed it.
class RandomState {
 public:
  void Take(PyObject* kwargs);                      // of the call, or null: it may name a generator
  void Note(collect::EntryBuilder& builder) const;  // adds "rng" when the call drew numbers

 private:
  Ref state_;
};

}  // namespace msprobe::capture
