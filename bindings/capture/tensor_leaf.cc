// Tensors: plain ones through the exchange table, all others with the help of Python.
#include <array>

#include "bindings/capture/describe.h"
#include "bindings/capture/device.h"
#include "bindings/capture/evidence.h"
#include "bindings/capture/state.h"
#include "metrics/tensor_stats.h"
#include "tensor/dtype.h"

namespace msprobe::capture {
namespace {

using collect::Absent;
using collect::TensorLeaf;

std::optional<DType> FromExchange(dlpack::DataType t) {
  if (t.lanes != 1) return std::nullopt;
  const auto pick = [&](DType b8, DType b16, DType b32, DType b64) -> std::optional<DType> {
    switch (t.bits) {
      case 8:
        return b8;
      case 16:
        return b16;
      case 32:
        return b32;
      case 64:
        return b64;
      default:
        return std::nullopt;
    }
  };
  switch (t.code) {
    case dlpack::kInt:
      return pick(DType::kI8, DType::kI16, DType::kI32, DType::kI64);
    case dlpack::kUInt:
      return pick(DType::kU8, DType::kU16, DType::kU32, DType::kU64);
    case dlpack::kFloat:
      if (t.bits == 8) return std::nullopt;
      return pick(DType::kF16, DType::kF16, DType::kF32, DType::kF64);
    case dlpack::kBfloat:
      return t.bits == 16 ? std::optional(DType::kBF16) : std::nullopt;
    case dlpack::kComplex:
      if (t.bits == 32) return DType::kC32;
      if (t.bits == 64) return DType::kC64;
      return t.bits == 128 ? std::optional(DType::kC128) : std::nullopt;
    case dlpack::kBool:
      return t.bits == 8 ? std::optional(DType::kBool) : std::nullopt;
    case dlpack::kFloat8E4M3FN:
      return DType::kF8E4M3FN;
    case dlpack::kFloat8E4M3FNUZ:
      return DType::kF8E4M3FNUZ;
    case dlpack::kFloat8E5M2:
      return DType::kF8E5M2;
    case dlpack::kFloat8E5M2FNUZ:
      return DType::kF8E5M2FNUZ;
    case dlpack::kFloat8E8M0FNU:
      return DType::kF8E8M0FNU;
    default:
      return std::nullopt;
  }
}

bool OnHost(const dlpack::Device& device) {
  return device.type == dlpack::kDeviceCpu || device.type == dlpack::kDeviceCudaHost ||
         device.type == dlpack::kDeviceRocmHost;
}

// The lazy sign and conjugation bits say that memory does not hold the value. Only types that
// complex numbers are made of carry them. False also when asking failed.
bool MemoryIsValue(PyObject* tensor, DType dtype) {
  const Torch& torch = torch_objects();
  int bits = 0;
  if (IsComplex(dtype)) bits |= torch.is_conj.Truth(tensor);
  if (IsComplex(dtype) || dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kF16) {
    bits |= torch.is_neg.Truth(tensor);
  }
  if (bits < 0) ClearError();
  return bits == 0;
}

// Fills `view` from a plain tensor whose memory this process may read and whose memory is its
// value.
bool ViewOf(PyObject* tensor, TensorView& view, bool host = true) {
  const Torch& torch = torch_objects();
  if (torch.exchange == nullptr) return false;
  dlpack::Tensor t{};
  if (torch.exchange->tensor_from_object(tensor, &t) != 0) {
    ClearError();
    return false;
  }
  if ((host && !OnHost(t.device)) || t.ndim < 0) return false;
  const std::optional<DType> dtype = FromExchange(t.dtype);
  if (!dtype) return false;
  const auto rank = static_cast<size_t>(t.ndim);
  view = {nullptr, *dtype, {t.shape, rank}, {t.strides, t.strides != nullptr ? rank : 0}};
  if (t.data == nullptr && view.num_elements() != 0) return false;
  if (host && !MemoryIsValue(tensor, *dtype)) return false;
  view.data = static_cast<const std::byte*>(t.data) + t.byte_offset;
  return true;
}

bool Ints(PyObject* tuple, std::vector<int64_t>& out) {
  if (!PyTuple_Check(tuple)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    out.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i)));
    if (out.back() == -1 && PyErr_Occurred() != nullptr) return false;
  }
  return true;
}

}  // namespace

bool ViewOfAnyDevice(PyObject* tensor, TensorView& view) { return ViewOf(tensor, view, false); }

bool HostMemory::Take(PyObject* memory) {
  if (memory == Py_None) return false;
  if (!PyTuple_Check(memory)) return ViewOf(memory, view_);
  PyObject *address = nullptr, *s = nullptr, *st = nullptr, *name = nullptr, *owner = nullptr;
  const bool read = PyArg_ParseTuple(memory, "OOOU|O", &address, &s, &st, &name, &owner) != 0 &&
                    Ints(s, shape_) && Ints(st, strides_);
  const std::optional<DType> dtype = read ? DTypeFromTorchName(Utf8(name).view()) : std::nullopt;
  const void* const data = dtype ? PyLong_AsVoidPtr(address) : nullptr;
  if (!dtype || PyErr_Occurred() != nullptr) {
    ClearError();
    return false;
  }
  view_ = {static_cast<const std::byte*>(data), *dtype, shape_, strides_};
  return data != nullptr || view_.num_elements() == 0;
}

bool Describer::PlainTensor(PyObject* tensor) {
  TensorView view;
  if (!ViewOf(tensor, view)) return false;
  const Ref requires_grad = Ref::Steal(torch_objects().requires_grad(tensor));
  if (!requires_grad) {
    ClearError();
    return false;
  }
  TensorLeaf leaf;
  leaf.dtype_text = TorchName(view.dtype);
  leaf.shape = view.shape;
  leaf.requires_grad = requires_grad.get() == Py_True;
  leaf.view = &view;
  if (session().memory) leaf.memory = MemoryOf(tensor, view, produces_);
  leaf.from_json = DerivedText(tensor, leaf, produces_);
  builder_.Tensor(leaf);
  return true;
}

void Describer::Tensor(PyObject* tensor) {
  ++leaves_;
  const Torch& torch = torch_objects();
  PyTypeObject* const type = Py_TYPE(tensor);
  if (type == torch.tensor || type == torch.parameter) {
    if (session().device_force && DeferTensor(builder_, tensor, produces_)) return;
    if (PlainTensor(tensor)) return;
    if (session().device && DeferTensor(builder_, tensor, produces_)) return;
  }
  AnyTensor(tensor);
}

void Describer::AnyTensor(PyObject* tensor) {
  const Ref answer = Ref::Steal(PyObject_CallOneArg(torch_objects().plain_tensor, tensor));
  if (!answer) {
    const std::string why = TakeErrorText();
    session().collector->ReportFailure("describing a tensor", why);
    builder_.AbsentLeaf(Absent::kUnsupported, why);
    return;
  }
  ArrayLike(answer.get(), tensor);
}

namespace {

// Whether a plain tensor lies at `data` itself, which then is no copy.
bool OwnMemory(PyObject* tensor, const std::byte* data) {
  const Torch& torch = torch_objects();
  if (tensor == nullptr ||
      (Py_TYPE(tensor) != torch.tensor && Py_TYPE(tensor) != torch.parameter)) {
    return false;
  }
  const Ref address = Ref::Steal(PyObject_CallMethod(tensor, "data_ptr", nullptr));
  const void* const own = address ? PyLong_AsVoidPtr(address.get()) : nullptr;
  ClearError();
  return own != nullptr && own == data;
}

}  // namespace

// (type, dtype text, shape, requires_grad, memory, extra JSON, reason): `memory` is a plain tensor,
// a tuple of RawMemory, or None (no statistics). `reason` is text when the whole leaf is absent.
void Describer::ArrayLike(PyObject* answer, PyObject* tensor) {
  PyObject *type = nullptr, *dtype = nullptr, *shape = nullptr, *grad = nullptr, *memory = nullptr,
           *extra = nullptr, *reason = nullptr;
  std::vector<int64_t> extents;
  if (PyArg_ParseTuple(answer, "UUOOOUO", &type, &dtype, &shape, &grad, &memory, &extra, &reason) ==
          0 ||
      (reason == Py_None && !Ints(shape, extents))) {
    builder_.AbsentLeaf(Absent::kInternal, TakeErrorText());
    return;
  }
  if (reason != Py_None) {
    builder_.AbsentLeaf(Absent::kUnsupported,
                        PyUnicode_Check(reason) ? Utf8(reason).view() : std::string_view());
    return;
  }
  const Utf8 type_text(type), dtype_text(dtype), extra_text(extra);
  TensorLeaf leaf;
  leaf.type = type_text.view();
  leaf.dtype_text = dtype_text.view();
  leaf.shape = extents;
  leaf.requires_grad = grad == Py_True;
  leaf.extra_json = extra_text.view();
  HostMemory host;
  if (host.Take(memory)) leaf.view = &host.view();
  if (PyTuple_Check(memory) && session().memory && leaf.view != nullptr &&
      OwnMemory(tensor, leaf.view->data)) {
    leaf.memory = MemoryOf(tensor, *leaf.view, produces_);
  }
  builder_.Tensor(leaf);
}

std::optional<uint64_t> Hash64OfTensor(PyObject* tensor, int64_t at_most) {
  TensorView view;
  if (ViewOf(tensor, view)) {
    if (view.num_elements() > at_most) return std::nullopt;
    return metrics::Hash64Of(view);
  }
  if (at_most != INT64_MAX) return std::nullopt;
  const Ref answer = Ref::Steal(PyObject_CallOneArg(torch_objects().plain_tensor, tensor));
  if (!answer || !PyTuple_Check(answer.get()) || PyTuple_GET_SIZE(answer.get()) < 5) {
    ClearError();
    return std::nullopt;
  }
  HostMemory host;
  if (!host.Take(PyTuple_GET_ITEM(answer.get(), 4))) return std::nullopt;
  return metrics::Hash64Of(host.view());
}

}  // namespace msprobe::capture
