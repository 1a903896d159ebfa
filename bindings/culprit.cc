// Scores of replayed calls for Python (msprobe.precheck.culprit).
#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>

#include <optional>
#include <string>
#include <tuple>

#include "base/file.h"
#include "bindings/errors.h"
#include "bindings/module.h"
#include "culprit/score_model.h"
#include "formats/tensor_file.h"
#include "kernels/score.h"

namespace msprobe::bindings {
namespace {

namespace nb = nanobind;

// Address and dtype ("torch.float32") of contiguous elements that the caller keeps alive.
using Elements = std::tuple<uint64_t, std::string>;

DType FloatNamed(const std::string& name) {
  const std::optional<DType> dtype = DTypeFromTorchName(name);
  if (!dtype || !IsFloat(*dtype) || IsFloat8(*dtype)) {
    throw nb::value_error(("no floating dtype: " + name).c_str());
  }
  return *dtype;
}

std::tuple<double, double, double, double> Score(const Elements& y, uint64_t reference,
                                                 const std::optional<Elements>& native,
                                                 uint64_t condition,
                                                 const std::tuple<uint64_t, uint64_t>& shape,
                                                 double kappa) {
  kernels::ScoreInput in;
  in.y = reinterpret_cast<const std::byte*>(std::get<0>(y));
  in.dtype = FloatNamed(std::get<1>(y));
  in.reference = reinterpret_cast<const double*>(reference);
  if (native) {
    in.native = reinterpret_cast<const std::byte*>(std::get<0>(*native));
    in.native_dtype = FloatNamed(std::get<1>(*native));
  }
  in.condition = reinterpret_cast<const double*>(condition);
  in.n = std::get<0>(shape);
  in.row = std::get<1>(shape);
  in.kappa = kappa;
  in.u_acc = UnitRoundoff(in.dtype == DType::kF64 ? DType::kF64 : DType::kF32);
  const nb::gil_scoped_release release;
  const kernels::Score s = kernels::ScoreOf(in);
  return {s.score, s.rms, s.introduced, s.norm};
}

// The one tensor of a file in `folder`: its dtype, its shape, its elements in row-major order.
Result<formats::StoredTensor> OpenTensor(const std::string& folder, std::string_view name,
                                         std::optional<formats::TensorFile>& file) {
  MSPROBE_ASSIGN(const std::string path, ResolveInside(folder, name));
  MSPROBE_ASSIGN(formats::TensorFile opened, formats::TensorFile::Open(path));
  file.emplace(std::move(opened));
  return formats::SingleTensor(*file);
}

nb::tuple ReadTensor(const std::string& folder, std::string_view name, uint64_t most) {
  std::optional<formats::TensorFile> file;
  Result<formats::StoredTensor> stored = [&] {
    const nb::gil_scoped_release release;
    return OpenTensor(folder, name, file);
  }();
  if (!stored.ok()) RaiseError(stored.error(), "MsprobeError");
  const uint64_t bytes = static_cast<uint64_t>(stored->num_elements) * ItemSize(stored->dtype);
  // A view may repeat its elements: a small file can hold a tensor of any size.
  if (most > 0 && bytes > most) {
    RaiseError(Error(ErrorCode::kTooLarge, fmt::format("{} holds a tensor of {} bytes; at most {} "
                                                       "are expected",
                                                       name, bytes, most)),
               "MsprobeError");
  }
  // Not zeroed: ReadAll fills it or fails.
  nb::object memory =
      nb::steal(PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(bytes)));
  if (!memory.is_valid()) throw nb::python_error();
  auto* out = reinterpret_cast<std::byte*>(PyByteArray_AsString(memory.ptr()));
  const Status status = [&] {
    const nb::gil_scoped_release release;
    return file->ReadAll(*stored, out);
  }();
  if (!status.ok()) RaiseError(status.error(), "MsprobeError");
  nb::list shape;
  for (const int64_t n : stored->shape) shape.append(n);
  const std::string_view dtype = TorchName(stored->dtype);
  return nb::make_tuple(nb::str(dtype.data(), dtype.size()), std::move(shape), std::move(memory));
}

}  // namespace

void RegisterCulprit(nb::module_& m) {
  m.def(
      "read_tensor", &ReadTensor, nb::arg("folder"), nb::arg("name"), nb::arg("most") = 0,
      nb::sig("def read_tensor(folder: str, name: str, most: int = 0) -> tuple[str, list[int], "
              "bytearray]"),
      "The tensor of a .pt or .npy file below a folder: dtype (\"torch.float32\"), shape, and its "
      "elements in row-major order. Nothing in the file is executed. Raises MsprobeError: no such "
      "file, a name that leads out of the folder, no tensor file, more than `most` bytes (0: "
      "any).");
  m.def(
      "culprit_score", &Score, nb::arg("y"), nb::arg("reference"), nb::arg("native").none(),
      nb::arg("condition"), nb::arg("shape"), nb::arg("kappa"),
      "Largest and root mean square ratio of |y - reference| to the error that rounding explains, "
      "then the Euclidean norms of the error and the reference. Addresses; `shape` is (elements, "
      "length of the last axis).");
  m.def("culprit_kappa", &culprit::Kappa, nb::arg("api"), nb::arg("n"), nb::arg("sixteen"),
        "How many roundings of the accumulating type a call of this API adds up.");
  m.def("culprit_parameter_kappa", &culprit::ParameterGradKappa, nb::arg("n"),
        "The same for the gradient of a parameter.");
  m.def("culprit_is_product", &culprit::IsProduct, nb::arg("api"),
        "Does the API multiply two operands and add up?");
  m.def("culprit_is_low_precision", &culprit::IsLowPrecision, nb::arg("api"),
        "Does autocast run the API in its 16-bit type?");
}

}  // namespace msprobe::bindings
