// One pair of stored tensors, read side by side in blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/tensor_file.h"
#include "kernels/pair_errors.h"

namespace msprobe::compare {

// An open file with the single tensor it holds. Elements come by ranges, from the file when they
// lie there in order, else from memory after Load().
class TensorSource {
 public:
  // `path` names the file in errors.
  static Result<TensorSource> Open(const std::string& path);

  const formats::StoredTensor& tensor() const { return tensor_; }
  bool streams() const { return tensor_.contiguous && tensor_.stored; }
  uint64_t bytes() const;
  Status Load();
  // Elements [first, first + count); `buffer` is grown as needed and may or may not be used.
  Result<const std::byte*> Read(int64_t first, int64_t count, std::vector<std::byte>& buffer) const;

 private:
  TensorSource(formats::TensorFile file, formats::StoredTensor tensor)
      : file_(std::move(file)), tensor_(std::move(tensor)) {}
  formats::TensorFile file_;
  formats::StoredTensor tensor_;
  std::vector<std::byte> loaded_;
};

struct PairResult {
  kernels::PairErrors errors;
  bool positions_differ = false;  // a NaN or infinity where the other side has none
  uint64_t opposite = 0;          // infinities of opposite sign
};

// Elements [first, first + count) of both sides. Deterministic: blocks are cut from `first` on.
Result<PairResult> ComparePiece(const TensorSource& target, const TensorSource& golden,
                                int64_t first, int64_t count);

// Where |a - b| is largest beside |b| + `scale` (> 0), over all elements; the search ends at the
// first place where that quotient exceeds `enough`. NaN and infinity are passed over.
struct PairPoint {
  double error = 0, value = 0;  // |a - b|, |b|
};
Result<PairPoint> FindWorst(const TensorSource& target, const TensorSource& golden, double scale,
                            double enough);

// |a - b| and |b| of one element; magnitudes of complex ones.
Result<PairPoint> PointAt(const TensorSource& target, const TensorSource& golden, int64_t index);

// The real (`imaginary` false) or imaginary part of one element as double.
double ElementAt(const std::byte* data, DType dtype, size_t index, bool imaginary);

}  // namespace msprobe::compare
