// Statistics, pair errors and checksums of arrays in CPU memory.
#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "bindings/module.h"
#include "json/json.h"
#include "metrics/pair_metrics.h"
#include "metrics/sketch.h"
#include "metrics/tensor_stats.h"

namespace msprobe::bindings {
namespace {

namespace nb = nanobind;
using Array = nb::ndarray<nb::ro, nb::device::cpu>;

std::optional<DType> DTypeOfArray(const nb::dlpack::dtype& t) {
  using Code = nb::dlpack::dtype_code;
  const auto pick = [&](std::initializer_list<DType> types) -> std::optional<DType> {
    for (const DType d : types) {
      if (ItemSize(d) * 8 == t.bits) return d;
    }
    return std::nullopt;
  };
  if (t.lanes != 1) return std::nullopt;
  switch (static_cast<Code>(t.code)) {
    case Code::Bool:
      return pick({DType::kBool});
    case Code::UInt:
      return pick({DType::kU8, DType::kU16, DType::kU32, DType::kU64});
    case Code::Int:
      return pick({DType::kI8, DType::kI16, DType::kI32, DType::kI64});
    case Code::Float:
      return pick({DType::kF16, DType::kF32, DType::kF64});
    case Code::Bfloat:
      return pick({DType::kBF16});
    case Code::Complex:
      return pick({DType::kC32, DType::kC64, DType::kC128});
    case Code::Float8_E4M3FN:
      return DType::kF8E4M3FN;
    case Code::Float8_E4M3FNUZ:
      return DType::kF8E4M3FNUZ;
    case Code::Float8_E5M2:
      return DType::kF8E5M2;
    case Code::Float8_E5M2FNUZ:
      return DType::kF8E5M2FNUZ;
    case Code::Float8_E8M0FNU:
      return DType::kF8E8M0FNU;
    default:
      return std::nullopt;
  }
}

// `dtype_name` reads the bytes as another type of equal size; "" takes the array's own.
DType DTypeOf(const Array& array, const std::string& dtype_name) {
  const std::optional<DType> dtype =
      dtype_name.empty() ? DTypeOfArray(array.dtype()) : DTypeFromTorchName(dtype_name);
  if (!dtype) {
    const std::string what = dtype_name.empty() ? "the array's element type" : dtype_name;
    throw nb::value_error(("unknown dtype: " + what).c_str());
  }
  if (ItemSize(*dtype) != array.itemsize()) {
    throw nb::value_error(
        ("dtype " + std::string(ShortName(*dtype)) + " does not have the array's item size")
            .c_str());
  }
  return *dtype;
}

// Checksums are of bytes: only the size of the elements matters.
DType DTypeOfSize(const Array& array) {
  switch (array.itemsize()) {
    case 1:
      return DType::kU8;
    case 2:
      return DType::kU16;
    case 4:
      return DType::kU32;
    case 8:
      return DType::kU64;
    case 16:
      return DType::kC128;
    default:
      throw nb::value_error("elements must have 1, 2, 4, 8 or 16 bytes");
  }
}

// A view of an array, with the shape and strides it refers to.
struct ArrayView {
  Shape shape;
  std::vector<int64_t> strides;
  TensorView view;

  ArrayView(const ArrayView&) = delete;
  ArrayView& operator=(const ArrayView&) = delete;
  ArrayView(const Array& array, DType dtype) {
    for (size_t i = 0; i < array.ndim(); ++i) {
      shape.push_back(static_cast<int64_t>(array.shape(i)));
      strides.push_back(array.stride(i));
    }
    view = {static_cast<const std::byte*>(array.data()), dtype, shape, strides};
  }
};

nb::object ToPython(const metrics::Number& number) {
  return std::visit(
      [](auto x) -> nb::object {
        if constexpr (std::is_same_v<decltype(x), std::monostate>) {
          return nb::none();
        } else {
          return nb::cast(x);
        }
      },
      number);
}

std::string_view Name(metrics::CosineCase c) {
  using enum metrics::CosineCase;
  switch (c) {
    case kValue:
      return "value";
    case kOneElement:
      return "one_element";
    case kBothZero:
      return "both_zero";
    case kTargetZero:
      return "target_zero";
    case kGoldenZero:
      return "golden_zero";
    case kNan:
      break;
  }
  return "nan";
}

nb::dict Stats(const Array& array, const std::string& dtype) {
  const ArrayView a(array, DTypeOf(array, dtype));
  metrics::TensorStats s;
  {
    nb::gil_scoped_release release;
    s = metrics::StatsOf(a.view);
  }
  nb::dict d;
  d["max"] = ToPython(s.max);
  d["min"] = ToPython(s.min);
  d["mean"] = ToPython(s.mean);
  d["norm"] = ToPython(s.norm);
  d["nan"] = s.nan;
  d["inf"] = s.inf;
  d["finite_max"] = ToPython(s.finite_max);
  d["finite_min"] = ToPython(s.finite_min);
  return d;
}

nb::dict ToDict(const kernels::PairErrors& e) {
  nb::dict d;
  d["count"] = e.count;
  d["class_mismatch"] = e.class_mismatch;
  d["both_nan"] = e.both_nan;
  d["both_inf"] = e.both_inf;
  d["dot"] = e.dot;
  d["a_sumsq"] = e.a_sumsq;
  d["b_sumsq"] = e.b_sumsq;
  d["diff_sumsq"] = e.diff_sumsq;
  d["max_abs"] = e.max_abs;
  d["max_rel"] = e.max_rel;
  d["below_thousandth"] = e.below_thousandth;
  d["below_five_thousandths"] = e.below_five_thousandths;
  d["rel_nan"] = e.rel_nan;
  d["unequal"] = e.unequal;
  d["first_unequal"] = e.first_unequal;
  d["max_abs_index"] = e.max_abs_index;
  d["scale"] = e.scale;
  d["a_scale"] = e.a_scale;
  d["b_scale"] = e.b_scale;
  return d;
}

nb::dict Pair(const Array& a_array, const Array& b_array, const std::string& a_dtype,
              const std::string& b_dtype) {
  const ArrayView a(a_array, DTypeOf(a_array, a_dtype));
  const ArrayView b(b_array, DTypeOf(b_array, b_dtype));
  if (a.view.num_elements() != b.view.num_elements()) {
    throw nb::value_error("the arrays have different numbers of elements");
  }
  if (IsComplex(a.view.dtype) != IsComplex(b.view.dtype)) {
    throw nb::value_error("a complex array can only be compared with another");
  }
  kernels::PairErrors e;
  {
    nb::gil_scoped_release release;
    e = metrics::PairErrorsOf(a.view, b.view, metrics::WorkTypeOf(a.view.dtype, b.view.dtype));
  }
  const metrics::PairMetrics m = metrics::MetricsOf(e);
  nb::dict out;
  out["cosine_case"] = nb::cast(std::string(Name(m.cosine_case)));
  out["cosine"] = m.cosine;
  out["euclidean"] = m.euclidean;
  out["max_abs"] = m.max_abs;
  out["max_rel"] = m.max_rel;
  out["below_thousandth"] = m.below_thousandth;
  out["below_five_thousandths"] = m.below_five_thousandths;
  out["raw"] = ToDict(e);
  return out;
}

// A checksum of an array as an int.
template <auto kFunction>
auto Checksum(const Array& array) {
  const ArrayView a(array, DTypeOfSize(array));
  nb::gil_scoped_release release;
  return kFunction(a.view);
}

// The record of a tensor as a leaf of dump.json has it: dtype, shape, Norm, hash64 and sketch.
std::string SketchRecord(const Array& array, uint32_t k, uint64_t seed, const std::string& dtype) {
  if (k % metrics::kLeastSketchSize != 0 || k < metrics::kLeastSketchSize ||
      k > metrics::kMostSketchSize || seed > INT64_MAX) {
    throw nb::value_error("k is a multiple of 64 from 64 to 4096, seed is below 2^63");
  }
  const ArrayView a(array, DTypeOf(array, dtype));
  nb::gil_scoped_release release;
  uint64_t hash = 0;
  const metrics::Sketch sketch = metrics::SketchOf(a.view, {k, seed}, &hash);
  std::string out = fmt::format(R"({{"dtype": "{}", "shape": {}, "Norm": )",
                                TorchName(a.view.dtype), ShapeText(a.shape));
  const metrics::TensorStats stats = metrics::StatsOf(a.view);
  const double* const norm = std::get_if<double>(&stats.norm);
  json::AppendDouble(out, norm != nullptr ? *norm : sketch.Norm());
  out += fmt::format(R"(, "hash64": "{:016x}", "sketch": )", hash);
  metrics::AppendSketch(out, sketch);
  return out + "}";
}

// Of two such records.
nb::dict SketchesApart(const std::string& x, const std::string& y) {
  metrics::Sketch sketches[2];
  double norms[2] = {};
  for (const size_t i : {0u, 1u}) {
    const Result<json::Document> record = json::ParseDocument(i == 0 ? x : y);
    if (!record.ok()) throw nb::value_error(record.error().ToString().c_str());
    Result<std::optional<metrics::Sketch>> sketch = metrics::ReadSketch(record->root());
    if (!sketch.ok()) throw nb::value_error(sketch.error().ToString().c_str());
    if (!*sketch) throw nb::value_error("the record has no sketch");
    sketches[i] = std::move(**sketch);
    const json::Value* const norm = record->root().Find("Norm");
    norms[i] = norm != nullptr && norm->is_number() ? norm->as_double() : -1;
  }
  const Result<metrics::SketchDistance> d =
      metrics::Distance(sketches[0], sketches[1], norms[0], norms[1]);
  if (!d.ok()) throw nb::value_error(d.error().ToString().c_str());
  nb::dict out;
  out["distance"] = d->distance;
  out["distance_bar"] = d->distance_bar;
  out["relative"] = d->relative;
  out["relative_bar"] = d->relative_bar;
  out["cosine"] = d->cosine;
  out["cosine_bar"] = d->cosine_bar;
  out["below_floor"] = d->below_floor;
  out["own_norms"] = d->own_norms;
  return out;
}

}  // namespace

void RegisterMetrics(nb::module_& m) {
  m.def("tensor_stats", &Stats, nb::arg("array").noconvert(), nb::arg("dtype") = "",
        "Return Max, Min, Mean and Norm of an array in CPU memory, and its counts of NaN and "
        "infinity.\n\n"
        "Any strides. `dtype` (a torch name) reads the elements as another type of the same size, "
        "for\n"
        "types that the array library lacks: bfloat16 as uint16, float8 as uint8.");
  m.def("pair_errors", &Pair, nb::arg("a").noconvert(), nb::arg("b").noconvert(),
        nb::arg("dtype_a") = "", nb::arg("dtype_b") = "",
        "Return the six figures between a target `a` and a golden `b` of equally many elements, "
        "unrounded,\n"
        "and under \"raw\" the sums and counts behind them.");
  m.def("crc32", &Checksum<&metrics::Crc32Of>, nb::arg("array").noconvert(),
        "CRC-32 (zlib) of the elements' bytes in row-major order.");
  m.def("xor64", &Checksum<&metrics::Xor64Of>, nb::arg("array").noconvert(),
        "XOR of the little-endian 64-bit words of the elements' bytes in row-major order, "
        "zero-padded.");
  m.def("hash64", &Checksum<&metrics::Hash64Of>, nb::arg("array").noconvert(),
        "Position-aware hash of the elements; does not depend on strides.");
  m.def(
      "sketch_record", &SketchRecord, nb::arg("array").noconvert(), nb::arg("k") = 256,
      nb::arg("seed") = 1, nb::arg("dtype") = "",
      "Return what a dump records of an array for summary_mode \"sketch\", as the text of a leaf: "
      "dtype,\nshape, Norm, hash64 and sketch (docs/sketch.md). `dtype` as for tensor_stats.");
  m.def("sketch_distance", &SketchesApart, nb::arg("x"), nb::arg("y"),
        "Return the estimated distance, relative distance and cosine of the tensors behind two "
        "records,\nwith the half-widths of their 95 % intervals. ValueError: a record that lies, "
        "another k, seed or\nnumber of elements, or a part of a tensor.");
  m.def("round12", &metrics::Round12, nb::arg("x"), "Return x as printed with 12 decimals.");
  m.def("round_cosine", &metrics::RoundCosine, nb::arg("x"),
        "Return x as a Cosine cell shows it: 12 decimals, 6 above 0.9999.");
  m.def(
      "active_target", [] { return std::string(kernels::ActiveTarget()); },
      "Return the name of the vector instruction set in use.");
}

}  // namespace msprobe::bindings
