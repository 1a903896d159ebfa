// Tensor files: .pt (zip with a restricted pickle, or the legacy stream), .npy, safetensors, npz.
// Content decides, not the extension. Nothing is executed; sizes are believed only when the file
// agrees.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

namespace msprobe::formats {

struct Limits {
  uint64_t max_bytes = 10ull << 30;  // of one file
  int max_rank = 64;
};

// One tensor inside an open file: described, not yet read.
struct StoredTensor {
  std::string name;  // member name; empty for .npy and single-tensor .pt
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<int64_t> strides;  // in elements, >= 0, of the stored layout
  bool requires_grad = false;
  bool contiguous =
      true;  // row-major without gaps: elements are [offset, offset + n * item) of the file
  uint64_t offset = 0;  // of element 0 in the file, when `stored`
  bool stored = true;   // false: inside a deflated member, `offset` counts in the inflated bytes
  int64_t num_elements = 0;
  uint64_t span_bytes =
      0;  // bytes from element 0 to the end of the last one (== n * item when contiguous)
  uint32_t member = 0;  // index of the zip member that holds it
};

// An open tensor file. Thread-safe for reading.
class TensorFile {
 public:
  // Errors: those of InputFile; kMalformed, kTruncated, kUnsupported ("contains a dict, not a
  // tensor", "pickle opcode REDUCE of os.system refused"), kTooLarge.
  static Result<TensorFile> Open(const std::string& path, const Limits& limits = {});
  TensorFile(TensorFile&&) noexcept;
  TensorFile& operator=(TensorFile&&) noexcept;
  ~TensorFile();

  const std::vector<StoredTensor>& tensors() const;
  std::string_view format() const;  // "pt", "npy", "safetensors", "npz"
  // What the file holds instead of one tensor: "a dict of 3 entries"; empty when it is one.
  std::string_view holds() const;
  const std::string& path() const;

  // Elements [first, first + count) of a contiguous tensor, straight from the file when `stored`
  // (else the whole member is inflated, and the last one kept). Little-endian, whatever the file
  // has. kInvalidArgument outside the tensor or when it is not contiguous; kTruncated, kIo.
  Status ReadElements(const StoredTensor& tensor, int64_t first, int64_t count,
                      std::byte* out) const;
  // All elements in row-major order, whatever the layout. `out` has num_elements * ItemSize bytes;
  // beside them at most 1 MiB is used (and a deflated member).
  Status ReadAll(const StoredTensor& tensor, std::byte* out) const;

 private:
  TensorFile();
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

// The file must hold exactly one tensor (decisions.md 29): else kUnsupported with what it holds.
Result<StoredTensor> SingleTensor(const TensorFile& file);

// ---- writing
// -------------------------------------------------------------------------------------------------------------

// As torch.save of one plain CPU tensor (loads with torch.load(weights_only=True)); elements in
// row-major order. Every DType; sizes of 0 are allowed; requires_grad is dropped for the types that
// cannot have it or that torch.load could not read with it (integers, bool, 8-bit floats,
// complex32). The same input gives the same bytes. kInvalidArgument when `data` has not the size
// that dtype and shape say; otherwise the errors of AtomicFile.
Status WritePt(const std::string& path, DType dtype, std::span<const int64_t> shape,
               bool requires_grad, Bytes data);
// kUnsupported for bf16, fp8 and complex32, which NumPy has not.
Status WriteNpy(const std::string& path, DType dtype, std::span<const int64_t> shape, Bytes data);

}  // namespace msprobe::formats
