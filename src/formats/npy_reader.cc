// .npy, and .npz: a zip archive of .npy members.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "formats/contents.h"
#include "formats/npy_header.h"

namespace msprobe::formats {
namespace {

// Adds the array whose file starts `region.offset` bytes into the file or the inflated member and
// has `region.bytes` bytes.
Status AddArray(Contents& contents, const NpyHeader& header, Region region, std::string name) {
  StoredTensor tensor;
  tensor.name = std::move(name);
  tensor.dtype = header.dtype;
  tensor.shape = header.shape;
  if (header.fortran_order) {
    const std::vector<int64_t> reversed(header.shape.rbegin(), header.shape.rend());
    tensor.strides = TorchStrides(reversed);
    std::reverse(tensor.strides.begin(), tensor.strides.end());
  }
  // header.data_offset <= region.bytes: the header was read from there.
  region.offset += header.data_offset;
  region.bytes -= header.data_offset;
  const uint64_t have = region.bytes;
  Region endless = region;
  endless.bytes = contents.limits.max_bytes;
  MSPROBE_TRY(PlaceTensor(endless, 0, contents.limits, tensor));
  const uint64_t need = static_cast<uint64_t>(tensor.num_elements) * ItemSize(tensor.dtype);
  if (need > have) {
    return Error(ErrorCode::kTruncated,
                 fmt::format("npy: {} bytes of elements, {} expected", have, need))
        .AtOffset(region.offset + have);
  }
  if (need < have) {
    return Error(ErrorCode::kMalformed,
                 fmt::format("npy: {} bytes after the elements", have - need))
        .AtOffset(region.offset + need);
  }
  contents.tensors.push_back(std::move(tensor));
  contents.swapped.resize(region.member + 1, false);
  contents.swapped[region.member] = header.swapped;
  return {};
}

Result<std::string> ReadStart(const InputFile& file, uint64_t offset, uint64_t bytes) {
  std::string start(static_cast<size_t>(std::min<uint64_t>(bytes, kNpyMaxHeader + 12)), '\0');
  MSPROBE_TRY(file.ReadAt(offset, std::as_writable_bytes(std::span(start))));
  return start;
}

Error InMember(Error error, uint64_t base, std::string_view name) {
  error.message = fmt::format("member {}: {}", VisibleText(name), error.message);
  if (error.offset) *error.offset += base;
  return error;
}

Status AddMember(Contents& contents, const archive::ZipEntry& entry) {
  Region region;
  region.bytes = entry.size;
  region.member = static_cast<uint32_t>(&entry - contents.zip->entries().data());
  region.stored = entry.method == 0;
  std::string start;
  if (region.stored) {
    MSPROBE_ASSIGN(region.offset, contents.zip->DataOffset(entry));
    MSPROBE_ASSIGN(start, ReadStart(contents.file, region.offset, region.bytes));
  } else {
    MSPROBE_ASSIGN(start, contents.zip->Read(entry, contents.limits.max_bytes));
  }
  auto header = ParseNpyHeader(AsBytes(start));
  if (!header.ok()) return InMember(std::move(header).error(), region.offset, entry.name);
  const std::string name = entry.name.substr(0, entry.name.size() - 4);
  if (auto status = AddArray(contents, *header, region, name); !status.ok())
    return InMember(std::move(status).error(), 0, entry.name);
  return {};
}

}  // namespace

Status ReadNpy(Contents& contents) {
  contents.format = "npy";
  MSPROBE_ASSIGN(const std::string start, ReadStart(contents.file, 0, contents.file.size()));
  MSPROBE_ASSIGN(const NpyHeader header, ParseNpyHeader(AsBytes(start)));
  return AddArray(contents, header, Region{.bytes = contents.file.size()}, "");
}

Status ReadNpz(Contents& contents) {
  contents.format = "npz";
  for (const archive::ZipEntry& entry : contents.zip->entries())
    MSPROBE_TRY(AddMember(contents, entry));
  if (contents.tensors.size() != 1)
    contents.holds = fmt::format("{} arrays", contents.tensors.size());
  return {};
}

Status ReadZip(Contents& contents) {
  archive::ZipLimits limits;
  limits.max_entry_bytes = contents.limits.max_bytes;
  MSPROBE_ASSIGN(contents.zip, archive::ZipReader::Open(contents.file, limits));
  const std::vector<archive::ZipEntry>& entries = contents.zip->entries();
  if (entries.empty()) return Error(ErrorCode::kUnsupported, "an empty zip archive");
  const std::string_view first = entries.front().name;
  const size_t slash = first.find('/');
  const std::string_view stem = first.substr(0, slash == std::string_view::npos ? 0 : slash);
  const std::string pickle = fmt::format("{}/data.pkl", stem);
  const bool torch =
      !stem.empty() && std::any_of(entries.begin(), entries.end(),
                                   [&](const archive::ZipEntry& e) { return e.name == pickle; });
  if (torch) return ReadPtArchive(contents, stem);
  const bool npz = std::all_of(entries.begin(), entries.end(), [](const archive::ZipEntry& entry) {
    return entry.name.ends_with(".npy");
  });
  if (npz) return ReadNpz(contents);
  return Error(ErrorCode::kUnsupported, "a zip archive, but neither torch.save's nor .npz");
}

}  // namespace msprobe::formats
