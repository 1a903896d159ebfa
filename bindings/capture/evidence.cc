#include "bindings/capture/evidence.h"

#include <algorithm>
#include <array>
#include <unordered_set>

#include "bindings/capture/describe.h"
#include "bindings/capture/state.h"
#include "json/json.h"

namespace msprobe::capture {
namespace {

constexpr int kMaxDepth = 100;
constexpr int64_t kSmall = 1 << 16;     // elements: such tensors are hashed to see silent writes
constexpr size_t kMaxVisited = 10'000;  // values of one call that are looked at

// Storages that have a weak reference of ours. While it is held no other storage gets the address.
struct Storages {
  std::unordered_set<uint64_t> known;
  std::vector<uint64_t> in_turn;  // the same; a few are looked at whenever one is added
  size_t next = 0;
};

Storages& storages() {
  static auto* const s = new Storages;
  return *s;
}

// What remains of a storage that is gone is a hundred bytes, but it lies between the blocks of the
// tensors and keeps the allocator from joining them: it must not lie there for long. So the more
// memory a tensor has, the more storages are looked at when it comes: one costs about 0.1 us, a
// small part of what reading so many bytes does.
constexpr size_t kLookedAtLeast = 4, kLookedAtMost = 64;
constexpr size_t kBytesPerLook = 1 << 14;

bool Truth(PyObject* function, uint64_t storage) {
  const Ref number = Ref::Steal(PyLong_FromUnsignedLongLong(storage));
  const Ref answer = Ref::Steal(number ? PyObject_CallOneArg(function, number.get()) : nullptr);
  if (!answer) ClearError();
  return answer.get() == Py_True;
}

uint64_t NumberOf(PyObject* object) {
  const uint64_t number = object != nullptr ? PyLong_AsUnsignedLongLong(object) : 0;
  if (PyErr_Occurred() == nullptr) return number;
  ClearError();
  return 0;
}

// A weak reference to the storage at `address`, which `tensor` has; 0: there is none to be had.
// The storage's own Python object would count as an owner for as long as the storage lives, so a
// carrier borrows it. Nothing in between gives the lock of the interpreter away.
uint64_t WeakReferenceTo(PyObject* tensor, PyObject* address) {
  const Torch& torch = torch_objects();
  PyObject* const carrier = torch.storage_carrier;
  if (carrier == Py_None) {
    const Ref storage = Ref::Steal(PyObject_CallMethod(tensor, "untyped_storage", nullptr));
    const Ref weak =
        Ref::Steal(storage ? PyObject_CallMethodNoArgs(storage.get(), torch.s_weak_ref) : nullptr);
    return NumberOf(weak.get());
  }
  const Ref own = Ref::Steal(PyObject_GetAttr(carrier, torch.s_cdata));
  const Ref lent =
      Ref::Steal(own ? PyObject_CallMethodOneArg(carrier, torch.s_set_cdata, address) : nullptr);
  if (!lent) return NumberOf(nullptr);
  const Ref weak = Ref::Steal(PyObject_CallMethodNoArgs(carrier, torch.s_weak_ref));
  const uint64_t number = NumberOf(weak.get());
  const Ref back = Ref::Steal(PyObject_CallMethodOneArg(carrier, torch.s_set_cdata, own.get()));
  ClearError();
  return number;
}

// Forgets those of the next few storages whose memory is gone, before `bytes` more are known.
void ForgetSome(Storages& s, size_t bytes) {
  const Torch& torch = torch_objects();
  std::array<uint64_t, kLookedAtMost> gone{};
  size_t count = 0;
  const size_t looks =
      std::min(s.in_turn.size(), std::clamp(bytes / kBytesPerLook, kLookedAtLeast, kLookedAtMost));
  for (size_t i = 0; i < looks; ++i) {
    if (s.next >= s.in_turn.size()) s.next = 0;
    const uint64_t storage = s.in_turn[s.next];
    if (!Truth(torch.storage_expired, storage)) {
      ++s.next;
      continue;
    }
    s.in_turn[s.next] = s.in_turn.back();
    s.in_turn.pop_back();
    s.known.erase(storage);
    gone[count++] = storage;
  }
  if (count == 0) return;
  if (session().collector != nullptr) session().collector->ForgetStorages({gone.data(), count});
  for (size_t i = 0; i < count; ++i) Truth(torch.free_weak_ref, gone[i]);
}

// The address of the storage; 0: it has none, or is not known and not to be.
uint64_t StorageOf(PyObject* tensor, const TensorView& view, bool produce) {
  const Ref address = Ref::Steal(PyObject_CallOneArg(torch_objects().storage_address, tensor));
  const uint64_t number = NumberOf(address.get());
  if (number == 0) {
    ClearError();
    return 0;
  }
  Storages& s = storages();
  if (s.known.contains(number)) return number;
  if (!produce) return 0;
  ForgetSome(s, static_cast<size_t>(view.num_elements()) * ItemSize(view.dtype));
  if (WeakReferenceTo(tensor, address.get()) != number) {
    ClearError();
    return 0;
  }
  s.known.insert(number);
  s.in_turn.push_back(number);
  return number;
}

// -1: it has none (inference tensors), or asking failed.
int64_t VersionOf(PyObject* tensor) {
  const Ref version = Ref::Steal(torch_objects().version(tensor));
  const int64_t number = version ? PyLong_AsLongLong(version.get()) : -1;
  ClearError();
  return number;
}

bool IsPlain(PyObject* value) {
  const Torch& torch = torch_objects();
  return Py_TYPE(value) == torch.tensor || Py_TYPE(value) == torch.parameter;
}

// The place of `tensor` in the output part of its entry, or empty.
std::string PlaceInOutput(PyObject* tensor, PyObject* output) {
  if (output == nullptr) return {};
  if (output == tensor) return "output.0";
  const bool list = PyList_Check(output);
  if (!(list || PyTuple_CheckExact(output))) return {};
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(output); ++i) {
    if (PySequence_Fast_GET_ITEM(output, i) != tensor) continue;
    return (list ? "output.0." : "output.") + std::to_string(i);
  }
  return {};
}

}  // namespace

collect::MemoryId MemoryOf(PyObject* tensor, const TensorView& view, bool produce) {
  collect::MemoryId memory;
  if (view.data == nullptr || view.num_elements() == 0) return memory;
  if (!produce && storages().known.empty()) return memory;
  memory.storage = StorageOf(tensor, view, produce);
  if (memory.storage == 0) return memory;
  memory.version = VersionOf(tensor);
  if (memory.version < 0) memory.version = 0;  // an inference tensor: nothing counts its writes
  memory.address = view.data;
  memory.strides = view.strides;
  memory.dtype = view.dtype;
  return memory;
}

std::string_view DerivedText(PyObject* tensor, const collect::TensorLeaf& leaf, bool produce) {
  if (!session().evidence || produce || !leaf.requires_grad || leaf.memory.storage != 0) return {};
  const Ref node = Ref::Steal(torch_objects().grad_fn(tensor));
  if (!node) ClearError();
  return node && node.get() != Py_None ? R"("derived": true)" : std::string_view();
}

void ForgetStorages(bool all) {
  const Torch& torch = torch_objects();
  Storages& s = storages();
  if (s.known.empty() || torch.storage_expired == nullptr) return;
  std::vector<uint64_t> gone, kept;
  for (const uint64_t storage : s.in_turn) {
    (all || Truth(torch.storage_expired, storage) ? gone : kept).push_back(storage);
  }
  s.in_turn.swap(kept);
  if (session().collector != nullptr) session().collector->ForgetStorages(gone);
  for (const uint64_t storage : gone) {
    s.known.erase(storage);
    Truth(torch.free_weak_ref, storage);
  }
}

// ---- what a call changes in place
// ---------------------------------------------------------------

// NOLINTNEXTLINE(misc-no-recursion): the depth is bounded
void Versions::Add(PyObject* value, bool silent, int depth) {
  if (value == nullptr || ++visited_ > kMaxVisited) return;
  if (IsPlain(value)) {
    const int64_t version = VersionOf(value);
    if (version < 0) return;
    before_.push_back({value, version, std::nullopt});
    if (silent) before_.back().hash = Hash64OfTensor(value, kSmall);
    return;
  }
  if (depth >= kMaxDepth) return;
  if (PyTuple_Check(value) || PyList_Check(value)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i) {
      Add(PySequence_Fast_GET_ITEM(value, i), silent, depth + 1);
    }
  } else if (PyDict_Check(value)) {
    Py_ssize_t position = 0;
    PyObject *key = nullptr, *item = nullptr;
    while (PyDict_Next(value, &position, &key, &item) != 0) Add(item, silent, depth + 1);
  }
}

bool Versions::IsChanged(const Tensor& before) {
  if (VersionOf(before.object) > before.version) return true;
  return before.hash.has_value() && Hash64OfTensor(before.object, kSmall) != before.hash;
}

namespace {

// The tensors of a call that it has changed, with their places.
class Finder {
 public:
  struct Found {
    std::string path;
    PyObject* tensor;
  };
  explicit Finder(const std::unordered_set<PyObject*>& changed) : changed_(changed) {}

  // NOLINTNEXTLINE(misc-no-recursion): the depth is bounded
  void Look(PyObject* value, int depth = 0) {
    if (value == nullptr || ++visited_ > kMaxVisited) return;
    if (IsPlain(value)) {
      if (changed_.contains(value)) found_.push_back({path_, value});
      return;
    }
    if (depth >= kMaxDepth) return;
    const size_t size = path_.size();
    if (PyTuple_Check(value) || PyList_Check(value)) {
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i) {
        path_.append(1, '.').append(std::to_string(i));
        Look(PySequence_Fast_GET_ITEM(value, i), depth + 1);
        path_.resize(size);
      }
    } else if (PyDict_Check(value)) {
      Py_ssize_t position = 0;
      PyObject *key = nullptr, *item = nullptr;
      while (PyDict_Next(value, &position, &key, &item) != 0) {
        path_.append(1, '.').append(KeyText(key));
        Look(item, depth + 1);
        path_.resize(size);
      }
    }
  }
  void LookAt(const char* part, PyObject* value) {
    path_ = part;
    Look(value);
  }
  const std::vector<Found>& found() const { return found_; }

 private:
  const std::unordered_set<PyObject*>& changed_;
  std::string path_;
  std::vector<Found> found_;
  size_t visited_ = 0;
};

}  // namespace

void Versions::DescribeMutated(collect::EntryBuilder& builder, const Call& call) const {
  if (before_.empty()) return;
  std::unordered_set<PyObject*> changed;
  for (const Tensor& item : before_) {
    if (IsChanged(item)) changed.insert(item.object);
  }
  if (changed.empty()) return;
  Finder finder(changed);
  finder.LookAt("input", call.args);
  finder.LookAt("kwargs", call.kwargs);
  finder.LookAt("buffers", call.buffers);
  if (finder.found().empty()) return;
  builder.BeginPart(collect::Part::kMutated);
  builder.OpenObject();
  Describer describe(builder);
  describe.SetProduces();
  for (const Finder::Found& item : finder.found()) {
    builder.Key(item.path);
    const std::string same = PlaceInOutput(item.tensor, call.output);
    if (same.empty()) {
      describe.Value(item.tensor);
    } else {
      builder.Raw("{\"same_as\": \"" + same + "\"}");
    }
  }
  builder.CloseObject();
  builder.EndPart();
}

// ---- autocast and random numbers
// ----------------------------------------------------------------

void NoteAutocast(collect::EntryBuilder& builder) {
  const Torch& torch = torch_objects();
  const Ref on = Ref::Steal(PyObject_CallNoArgs(torch.any_autocast));
  if (on.get() != Py_True) {
    ClearError();
    return;
  }
  const Ref text = Ref::Steal(PyObject_CallNoArgs(torch.autocast_text));
  if (text && PyUnicode_Check(text.get())) builder.Extra("autocast", Utf8(text.get()).view());
  ClearError();
}

void RandomState::Take(PyObject* kwargs) {
  state_ = Ref::Steal(
      PyObject_CallOneArg(torch_objects().random_state, kwargs != nullptr ? kwargs : Py_None));
  if (!state_) ReportPythonFailure("reading the state of the random generators");
}

void RandomState::Note(collect::EntryBuilder& builder) const {
  if (!state_) return;
  const Ref text = Ref::Steal(PyObject_CallOneArg(torch_objects().random_text, state_.get()));
  if (!text) ReportPythonFailure("reading the state of the random generators");
  if (text && PyUnicode_Check(text.get())) builder.Extra("rng", Utf8(text.get()).view());
}

}  // namespace msprobe::capture
