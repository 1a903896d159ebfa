// From Python values to the leaves of dump.md 11.3. Nothing here raises: what cannot be described
// becomes an absent leaf with a reason.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/capture/py.h"
#include "collect/collector.h"
#include "tensor/view.h"

namespace msprobe::capture {

// Positions and keywords that an ignore rule masks (dump.md 6.8): they become null.
struct Mask {
  uint32_t positions = 0;  // bit i: position i
  std::string_view keyword;
};

// UTF-8 of a Python string (lone surrogates as WTF-8). The text lives as long as this object and
// the string.
class Utf8 {
 public:
  explicit Utf8(PyObject* string);
  std::string_view view() const { return view_; }

 private:
  Ref bytes_;
  std::string_view view_;
};

// Describes values of one entry, one after the other, at the builder's current position.
class Describer {
 public:
  explicit Describer(collect::EntryBuilder& builder) : builder_(builder) {}

  // The values from here on are results of the call: their memory is remembered as its work.
  void SetProduces() { produces_ = true; }

  void Value(PyObject* value);
  void Tensor(PyObject* tensor);
  void Positional(PyObject* args, const Mask& mask);  // a list part
  void Keywords(PyObject* kwargs, const Mask& mask);  // an object part; kwargs may be null
  void Output(PyObject* output,
              const Mask& mask);  // the output part, with dump.md 11.2's rule for tuples
  // Output of a collective: the positional arguments followed by the values of the keywords.
  void ArgumentsAsOutput(PyObject* args, PyObject* kwargs, const Mask& mask);
  void Parameters(PyObject* parameters);  // a module's own _parameters, as the parameters part

 private:
  void Sequence(PyObject* sequence);
  void Dict(PyObject* dict);
  void Fields(PyObject* value, PyObject* names);
  void Other(PyObject* value);
  // `tensor`: what the answer is about, or null for arrays of others.
  void ArrayLike(PyObject* answer, PyObject* tensor = nullptr);
  void Slice(PyObject* slice);
  void Int(PyObject* value);
  bool Simple(PyObject* value);
  bool OfTorch(PyObject* value);
  bool PlainTensor(PyObject* tensor);
  void AnyTensor(PyObject* tensor);
  bool Enter(PyObject* container);
  void Leave() { containers_.pop_back(); }

  collect::EntryBuilder& builder_;
  std::vector<PyObject*> containers_;  // from outside in, borrowed
  uint32_t leaves_ = 0;
  bool produces_ = false;
};

bool IsNamedTuple(PyObject* value);
// Memory that this process may read: of a plain tensor, or, where there is no exchange table, what
// the helper says of it: (address, shape, strides in elements, "torch.float32", owner).
class HostMemory {
 public:
  bool Take(PyObject* memory);  // false: there is none; no error is set
  const TensorView& view() const { return view_; }

 private:
  std::vector<int64_t> shape_, strides_;
  TensorView view_;
};
// Type, shape, strides and address of a plain tensor; memory of a device must not be read through
// it.
bool ViewOfAnyDevice(PyObject* tensor, TensorView& view);
// hash64 of any tensor whose elements can be read; nullopt: there are none to read, or more than
// `at_most`.
std::optional<uint64_t> Hash64OfTensor(PyObject* tensor, int64_t at_most = INT64_MAX);
// A dict key as Python's json writes it; other kinds by their repr.
std::string KeyText(PyObject* key);

}  // namespace msprobe::capture
