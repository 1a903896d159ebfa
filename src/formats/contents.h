// What the readers of the formats fill in. Internal to this folder.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "archive/zip.h"
#include "base/file.h"
#include "formats/tensor_file.h"

namespace msprobe::formats {

struct Contents {
  Contents(InputFile f, const Limits& l) : file(std::move(f)), limits(l) {}

  InputFile file;
  Limits limits;
  std::string_view format;
  std::vector<StoredTensor> tensors;
  std::string holds;  // what the file holds instead of one tensor; empty when it is one
  std::optional<archive::ZipReader> zip;
  std::vector<bool> swapped;  // by member: big-endian elements; empty when none are
};

// Each fills `contents` but for `file` and `limits`. The caller has looked at the first bytes only.
Status ReadZip(Contents& contents);  // torch.save's archive or .npz; opens `zip`
Status ReadPtArchive(Contents& contents, std::string_view stem);
Status ReadPtStream(Contents& contents);
Status ReadNpy(Contents& contents);
Status ReadNpz(Contents& contents);
Status ReadSafetensors(Contents& contents);

// Where the bytes of a tensor may lie.
struct Region {
  uint64_t offset = 0;  // in the file, or in the inflated member when not `stored`
  uint64_t bytes = 0;
  bool stored = true;
  uint32_t member = 0;
};

// Fills everything of `tensor` that follows from dtype, shape and strides (empty: row-major) when
// element 0 is `first` elements into `region`. kTooLarge beyond the limits; kMalformed when the
// elements do not lie inside the region.
Status PlaceTensor(const Region& region, int64_t first, const Limits& limits, StoredTensor& tensor);

// Row-major strides as PyTorch gives them: extents of 0 count as 1.
std::vector<int64_t> TorchStrides(std::span<const int64_t> shape);

}  // namespace msprobe::formats
