// safetensors: u64 length of a JSON header, the header, then the elements of all tensors without
// gaps.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "formats/contents.h"
#include "json/json.h"

namespace msprobe::formats {
namespace {

constexpr uint64_t kMaxHeader = 100'000'000;  // as the format's own library

struct Tag {
  std::string_view name;
  DType dtype;
};
constexpr std::array kTags = {
    Tag{"BOOL", DType::kBool},
    Tag{"U8", DType::kU8},
    Tag{"I8", DType::kI8},
    Tag{"U16", DType::kU16},
    Tag{"I16", DType::kI16},
    Tag{"U32", DType::kU32},
    Tag{"I32", DType::kI32},
    Tag{"U64", DType::kU64},
    Tag{"I64", DType::kI64},
    Tag{"F16", DType::kF16},
    Tag{"BF16", DType::kBF16},
    Tag{"F32", DType::kF32},
    Tag{"F64", DType::kF64},
    Tag{"F8_E4M3", DType::kF8E4M3FN},
    Tag{"F8_E4M3FNUZ", DType::kF8E4M3FNUZ},
    Tag{"F8_E5M2", DType::kF8E5M2},
    Tag{"F8_E5M2FNUZ", DType::kF8E5M2FNUZ},
    Tag{"F8_E8M0", DType::kF8E8M0FNU},
    Tag{"C64", DType::kC64},
};

Error HeaderError(ErrorCode code, std::string_view message) {
  return Error(code, fmt::format("safetensors header: {}", message));
}

Error EntryError(ErrorCode code, std::string_view name, std::string_view message) {
  return HeaderError(code, fmt::format("tensor {}: {}", VisibleText(name), message))
      .Key(std::string(name));
}

struct Placed {
  uint64_t begin;
  uint64_t end;
  std::string_view name;
};

Result<StoredTensor> ReadEntry(const json::Value::Member& member, Placed& placed) {
  const auto bad = [&](ErrorCode code, std::string_view message) {
    return EntryError(code, member.key, message);
  };
  const json::Value* const dtype = member.value.Find("dtype");
  const json::Value* const shape = member.value.Find("shape");
  const json::Value* const range = member.value.Find("data_offsets");
  if (dtype == nullptr || shape == nullptr || range == nullptr || !dtype->is_string() ||
      !shape->is_array() || !range->is_array() || range->size() != 2)
    return bad(ErrorCode::kMalformed, "dtype, shape or data_offsets is missing or of another kind");
  const auto is_size = [](const json::Value& v) { return v.is_int() && v.as_int() >= 0; };
  if (!std::all_of(shape->begin(), shape->end(), is_size) || !is_size((*range)[0]) ||
      !is_size((*range)[1]))
    return bad(ErrorCode::kMalformed, "a size or offset is no natural number");
  const auto* const tag = std::find_if(kTags.begin(), kTags.end(),
                                       [&](const Tag& t) { return t.name == dtype->as_string(); });
  if (tag == kTags.end())
    return bad(ErrorCode::kUnsupported,
               fmt::format("element type {}", VisibleText(dtype->as_string())));
  placed = {static_cast<uint64_t>((*range)[0].as_int()),
            static_cast<uint64_t>((*range)[1].as_int()), member.key};
  if (placed.begin > placed.end) return bad(ErrorCode::kMalformed, "data_offsets run backwards");
  StoredTensor tensor;
  tensor.name = member.key;
  tensor.dtype = tag->dtype;
  for (const json::Value& extent : *shape) tensor.shape.push_back(extent.as_int());
  return tensor;
}

// The ranges must cover the data exactly, one after the other.
Status CheckCover(std::vector<Placed>& ranges, uint64_t data_offset, uint64_t file_size) {
  std::sort(ranges.begin(), ranges.end(), [](const Placed& a, const Placed& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  const uint64_t data_size = file_size - data_offset;
  uint64_t at = 0;
  for (const Placed& range : ranges) {
    if (range.begin != at) {
      return EntryError(ErrorCode::kMalformed, range.name,
                        range.begin < at ? "overlaps another tensor" : "leaves a gap before it");
    }
    if (range.end > data_size) {
      return EntryError(ErrorCode::kTruncated, range.name,
                        fmt::format("ends {} bytes beyond the file", range.end - data_size))
          .AtOffset(file_size);
    }
    at = range.end;
  }
  if (at != data_size) {
    return HeaderError(ErrorCode::kMalformed,
                       fmt::format("{} bytes that belong to no tensor", data_size - at))
        .AtOffset(data_offset + at);
  }
  return {};
}

}  // namespace

Status ReadSafetensors(Contents& contents) {
  contents.format = "safetensors";
  const InputFile& file = contents.file;
  uint64_t length = 0;
  MSPROBE_TRY(file.ReadAt(0, std::as_writable_bytes(std::span(&length, 1))));
  if (length > kMaxHeader)
    return HeaderError(ErrorCode::kTooLarge, fmt::format("{} bytes", length));
  if (length > file.size() - sizeof(length))
    return HeaderError(ErrorCode::kTruncated,
                       fmt::format("{} bytes, {} are there", length, file.size() - sizeof(length)));
  std::string text(static_cast<size_t>(length), '\0');
  MSPROBE_TRY(file.ReadAt(sizeof(length), std::as_writable_bytes(std::span(text))));
  json::Limits json_limits;
  json_limits.max_depth = 8;
  auto document = json::ParseDocument(text, json_limits);
  if (!document.ok()) {
    Error error = std::move(document).error();
    error.message = fmt::format("safetensors header: {}", error.message);
    if (error.offset) *error.offset += sizeof(length);
    error.line = error.column = 0;
    if (error.code == ErrorCode::kTruncated)
      error.code = ErrorCode::kMalformed;  // the header itself is whole
    return error;
  }
  const json::Value& root = document->root();
  if (!root.is_object()) return HeaderError(ErrorCode::kMalformed, "no object");
  if (document->duplicate_keys() != 0)
    return HeaderError(ErrorCode::kMalformed, "a key is there twice");
  const uint64_t data_offset = sizeof(length) + length;
  std::vector<Placed> ranges;
  for (const auto* member = root.members_begin(); member != root.members_end(); ++member) {
    if (member->key == "__metadata__") continue;
    Placed range{};
    MSPROBE_ASSIGN(StoredTensor tensor, ReadEntry(*member, range));
    Region region;
    region.bytes = range.end - range.begin;
    region.offset = data_offset + range.begin;
    MSPROBE_TRY(PlaceTensor(region, 0, contents.limits, tensor));
    if (static_cast<uint64_t>(tensor.num_elements) * ItemSize(tensor.dtype) != region.bytes)
      return EntryError(ErrorCode::kMalformed, member->key, "shape and data_offsets do not agree");
    ranges.push_back(range);
    contents.tensors.push_back(std::move(tensor));
  }
  MSPROBE_TRY(CheckCover(ranges, data_offset, file.size()));
  if (contents.tensors.size() != 1)
    contents.holds = fmt::format("{} tensors", contents.tensors.size());
  return {};
}

}  // namespace msprobe::formats
