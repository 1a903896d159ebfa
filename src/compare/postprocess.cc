#include "compare/postprocess.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/file.h"
#include "compare/pair_reader.h"
#include "compare/valid_tail.h"
#include "formats/tensor_file.h"

namespace msprobe::compare {

namespace {

using config::MatrixProduct;

constexpr uint64_t kMaxBytes = 4ull << 30;  // of one operand in memory

struct Operand {
  DType dtype = DType::kF32;  // kF32 or kF64
  Shape shape;                // without extents of 1 where the caller asks for it
  std::vector<double> values;
};

Result<Operand> ReadOperand(const std::string& path, bool squeeze) {
  MSPROBE_ASSIGN(const formats::TensorFile file, formats::TensorFile::Open(path));
  MSPROBE_ASSIGN(const formats::StoredTensor tensor, formats::SingleTensor(file));
  if (IsComplex(tensor.dtype)) {
    return Error(ErrorCode::kUnsupported, "complex tensors are not multiplied").At(path);
  }
  const size_t n = static_cast<size_t>(tensor.num_elements);
  if (n > kMaxBytes / sizeof(double)) {
    return Error(ErrorCode::kTooLarge, "too large to multiply").At(path);
  }
  std::vector<std::byte> bytes(n * ItemSize(tensor.dtype));
  MSPROBE_TRY(file.ReadAll(tensor, bytes.data()));
  Operand out;
  out.dtype = tensor.dtype == DType::kF64 || IsExact(tensor.dtype) ? DType::kF64 : DType::kF32;
  out.shape = squeeze ? Squeezed(tensor.shape) : tensor.shape;
  out.values.resize(n);
  for (size_t i = 0; i < n; ++i) out.values[i] = ElementAt(bytes.data(), tensor.dtype, i, false);
  return out;
}

// One row of the product: out[j] = sum over k of a[k] * b[k * width + j]. In float32 each step is
// rounded as a fused multiply-add, which is what upstream's matrix library does: figures of rows
// compare with its reports.
void MultiplyRow(const double* a, const double* b, int64_t depth, int64_t width, bool single,
                 double* out) {
  std::fill(out, out + width, 0.0);
  for (int64_t k = 0; k < depth; ++k) {
    const double* row = b + k * width;
    if (single) {
      for (int64_t j = 0; j < width; ++j) {
        out[j] = static_cast<double>(static_cast<float>(a[k] * row[j] + out[j]));
      }
    } else {
      for (int64_t j = 0; j < width; ++j) out[j] = std::fma(a[k], row[j], out[j]);
    }
  }
}

struct Sizes {
  int64_t batch = 1, rows = 1, depth = 1, width = 1;
  Shape shape;  // of the product
};

// `x` has one dimension or more, `m` two. nullopt: they do not fit.
std::optional<Sizes> SizesOf(const Shape& x, const Shape& m, MatrixProduct::Side side) {
  if (m.size() != 2 || x.empty()) return std::nullopt;
  Sizes out;
  out.shape = x;
  if (side == MatrixProduct::Side::kRight) {
    if (x.back() != m[0]) return std::nullopt;
    out.depth = m[0];
    out.width = m[1];
    out.shape.back() = m[1];
    for (size_t i = 0; i + 1 < x.size(); ++i) out.rows *= x[i];
    return out;
  }
  const size_t at = x.size() == 1 ? 0 : x.size() - 2;
  if (x[at] != m[1]) return std::nullopt;
  out.rows = m[0];
  out.depth = m[1];
  out.width = x.size() == 1 ? 1 : x.back();
  out.shape[at] = m[0];
  for (size_t i = 0; i + 2 < x.size(); ++i) out.batch *= x[i];
  return out;
}

Result<Operand> Multiply(const Operand& x, const Operand& m, MatrixProduct::Side side) {
  const std::optional<Sizes> sizes = SizesOf(x.shape, m.shape, side);
  if (!sizes) {
    return Error(ErrorCode::kMismatch, fmt::format("shape {} and the matrix {} do not fit",
                                                   ShapeText(x.shape), ShapeText(m.shape)));
  }
  Operand out;
  out.dtype = x.dtype == DType::kF64 || m.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  out.shape = sizes->shape;
  const std::optional<int64_t> n = NumElements(out.shape);
  if (!n || static_cast<uint64_t>(*n) > kMaxBytes / sizeof(double)) {
    return Error(ErrorCode::kTooLarge, "the product is too large");
  }
  out.values.resize(static_cast<size_t>(*n));
  const bool single = out.dtype == DType::kF32;
  const bool right = side == MatrixProduct::Side::kRight;
  for (int64_t b = 0; b < sizes->batch; ++b) {
    const double* block = x.values.data() + (right ? 0 : b * sizes->depth * sizes->width);
    for (int64_t r = 0; r < sizes->rows; ++r) {
      const double* left = (right ? x.values.data() : m.values.data()) + r * sizes->depth;
      MultiplyRow(left, right ? m.values.data() : block, sizes->depth, sizes->width, single,
                  out.values.data() + (b * sizes->rows + r) * sizes->width);
    }
  }
  return out;
}

Status WriteOperand(const std::string& path, const Operand& operand) {
  if (operand.dtype == DType::kF64) {
    return formats::WritePt(path, DType::kF64, operand.shape, false,
                            std::as_bytes(std::span(operand.values)));
  }
  std::vector<float> single(operand.values.size());
  std::transform(operand.values.begin(), operand.values.end(), single.begin(),
                 [](double v) { return static_cast<float>(v); });
  return formats::WritePt(path, DType::kF32, operand.shape, false,
                          std::as_bytes(std::span(single)));
}

// The product of one recorded tensor, in a new file.
Status ApplyOne(const MatrixProduct& product, const Operand& matrix, const std::string& name,
                const std::string& folder, FileMap& files, const std::string& new_file) {
  std::string source;
  if (const auto it = files.find(name); it != files.end()) {
    source = it->second;
  } else {
    MSPROBE_ASSIGN(source, ResolveInside(folder, name));
  }
  MSPROBE_ASSIGN(const Operand x, ReadOperand(source, true));
  MSPROBE_ASSIGN(const Operand y, Multiply(x, matrix, product.side));
  MSPROBE_TRY(WriteOperand(new_file, y));
  files[name] = new_file;
  return {};
}

}  // namespace

Result<Postprocessed> Postprocessed::Make(const config::PostprocessConfig& config,
                                          const std::string& target_json,
                                          const std::string& golden_json,
                                          const std::string& scratch_parent, LogSink& log) {
  constexpr std::string_view kTensors = "dump_tensor_data";
  Postprocessed out;
  out.folder_ = std::make_shared<ScratchFolder>(scratch_parent);
  const auto new_file = [&]() -> Result<std::string> { return out.folder_->NewFile(); };
  struct SideFiles {
    const std::string& json;
    const std::vector<config::ValidLength>& lengths;
    std::string folder;
    std::shared_ptr<FileMap> files;
  };
  SideFiles sides[] = {{target_json, config.target_lengths,
                        JoinPath(DirName(target_json), kTensors), std::make_shared<FileMap>()},
                       {golden_json, config.golden_lengths,
                        JoinPath(DirName(golden_json), kTensors), std::make_shared<FileMap>()}};
  for (const SideFiles& side : sides) {
    // A dump that cannot be read is the comparison's to refuse.
    (void)ClearInvalidTails(side.json, side.folder, side.lengths, *side.files, new_file, log).ok();
  }
  for (const MatrixProduct& product : config.products) {
    const Result<Operand> matrix = ReadOperand(product.matrix, false);
    if (!matrix.ok()) {
      log.Warning(fmt::format("{} tensors are compared as they are: {}", product.data_names.size(),
                              matrix.error().ToString()));
      continue;
    }
    const SideFiles& side = sides[product.golden ? 1 : 0];
    for (const std::string& name : product.data_names) {
      MSPROBE_ASSIGN(const std::string file, new_file());
      const Status done = ApplyOne(product, *matrix, name, side.folder, *side.files, file);
      if (!done.ok()) {
        log.Warning(fmt::format("{} ({}) is compared as it is: {} ({})", name,
                                product.golden ? "golden" : "target", done.error().message,
                                product.matrix));
      }
    }
  }
  if (!sides[0].files->empty()) out.target_ = sides[0].files;
  if (!sides[1].files->empty()) out.golden_ = sides[1].files;
  return out;
}

}  // namespace msprobe::compare
