#include <fmt/format.h>
#include <libdeflate.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>

#include "archive/zip.h"
#include "archive/zip_format.h"
#include "base/checked.h"
#include "base/text.h"

namespace msprobe::archive {
namespace {

constexpr uint64_t kMaxDirectoryBytes = 2ull << 30;
constexpr uint64_t kMaxComment = 0xFFFF;
constexpr uint64_t kMaxDeflateRatio = 1032;  // of the deflate format itself

struct Directory {
  uint64_t offset = 0;
  uint64_t size = 0;
  uint64_t entries = 0;
};

template <class T>
T Load(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

Error Malformed(const InputFile& file, uint64_t offset, std::string_view message) {
  return Error(ErrorCode::kMalformed, fmt::format("zip: {}", message))
      .At(file.path())
      .AtOffset(offset);
}

Error Unsupported(const InputFile& file, uint64_t offset, std::string_view message) {
  return Error(ErrorCode::kUnsupported, fmt::format("zip: {}", message))
      .At(file.path())
      .AtOffset(offset);
}

Result<std::string> ReadBlock(const InputFile& file, uint64_t offset, uint64_t n) {
  std::string block(static_cast<size_t>(n), '\0');
  MSPROBE_TRY(file.ReadAt(offset, std::as_writable_bytes(std::span(block))));
  return block;
}

// The zip64 end record, when the locator in front of the end record at `end_offset` names one.
Result<std::optional<Directory>> ReadEnd64(const InputFile& file, uint64_t end_offset) {
  if (end_offset < kLocator64Size) return std::optional<Directory>();
  const uint64_t locator_offset = end_offset - kLocator64Size;
  MSPROBE_ASSIGN(const std::string locator, ReadBlock(file, locator_offset, kLocator64Size));
  if (Load<uint32_t>(locator, 0) != kLocator64Signature) return std::optional<Directory>();
  if (Load<uint32_t>(locator, 4) != 0 || Load<uint32_t>(locator, 16) > 1)
    return Unsupported(file, locator_offset, "several disks");
  const uint64_t offset = Load<uint64_t>(locator, 8);
  if (locator_offset < kEnd64Size || offset > locator_offset - kEnd64Size)
    return Malformed(file, locator_offset, "the zip64 end record lies outside the file");
  MSPROBE_ASSIGN(const std::string record, ReadBlock(file, offset, kEnd64Size));
  if (Load<uint32_t>(record, 0) != kEnd64Signature)
    return Malformed(file, offset, "no zip64 end record where its locator points");
  if (Load<uint32_t>(record, 16) != 0 || Load<uint32_t>(record, 20) != 0)
    return Unsupported(file, offset, "several disks");
  if (Load<uint64_t>(record, 24) != Load<uint64_t>(record, 32))
    return Malformed(file, offset, "two different counts of members");
  Directory d{Load<uint64_t>(record, 48), Load<uint64_t>(record, 40), Load<uint64_t>(record, 32)};
  if (d.offset > offset || d.size > offset - d.offset)
    return Malformed(file, offset, "the directory lies outside the file");
  return std::optional<Directory>(d);
}

Result<Directory> ReadEnd(const InputFile& file) {
  const uint64_t tail = std::min(file.size(), kEndSize + kMaxComment);
  const uint64_t tail_offset = file.size() - tail;
  MSPROBE_ASSIGN(const std::string block, ReadBlock(file, tail_offset, tail));
  std::optional<size_t> found;
  for (size_t at = block.size() < kEndSize ? 0 : block.size() - kEndSize + 1; at-- > 0;) {
    if (Load<uint32_t>(block, at) == kEndSignature &&
        at + kEndSize + Load<uint16_t>(block, at + 20) == block.size()) {
      found = at;
      break;
    }
  }
  if (!found) {
    return Error(ErrorCode::kTruncated,
                 "zip: no end record; the file is cut off or is no zip archive")
        .At(file.path())
        .AtOffset(file.size());
  }
  const uint64_t end_offset = tail_offset + *found;
  MSPROBE_ASSIGN(const std::optional<Directory> large, ReadEnd64(file, end_offset));
  if (large) return *large;
  const std::string_view end = std::string_view(block).substr(*found);
  if (Load<uint16_t>(end, 4) != 0 || Load<uint16_t>(end, 6) != 0)
    return Unsupported(file, end_offset, "several disks");
  if (Load<uint16_t>(end, 8) != Load<uint16_t>(end, 10))
    return Malformed(file, end_offset, "two different counts of members");
  Directory d{Load<uint32_t>(end, 16), Load<uint32_t>(end, 12), Load<uint16_t>(end, 10)};
  if (d.offset > end_offset || d.size > end_offset - d.offset)
    return Malformed(file, end_offset, "the directory lies outside the file");
  return d;
}

// Replaces the fields that say "look into zip64" by those of the extra field. False when it lacks
// them.
bool ApplyZip64(std::string_view extra, ZipEntry& entry, uint32_t& disk) {
  const bool any = entry.size == kMax32 || entry.compressed_size == kMax32 ||
                   entry.header_offset == kMax32 || disk == kMax16;
  if (!any) return true;
  ByteReader reader(AsBytes(extra));
  while (reader.remaining() >= 4) {
    const uint16_t id = *reader.Read<uint16_t>();
    const auto body = reader.Take(*reader.Read<uint16_t>());
    if (!body) return false;
    if (id != kZip64Extra) continue;
    ByteReader fields(*body);
    for (uint64_t* field : {&entry.size, &entry.compressed_size, &entry.header_offset}) {
      if (*field != kMax32) continue;
      const auto value = fields.Read<uint64_t>();
      if (!value) return false;
      *field = *value;
    }
    if (disk == kMax16) {
      const auto value = fields.Read<uint32_t>();
      if (!value) return false;
      disk = *value;
    }
    return true;
  }
  return entry.size != kMax32 && entry.compressed_size != kMax32 && entry.header_offset != kMax32 &&
         disk != kMax16;
}

Status CheckEntry(const InputFile& file, uint64_t at, const ZipEntry& entry,
                  const ZipLimits& limits) {
  const std::string name = VisibleText(entry.name);
  if (entry.size > limits.max_entry_bytes) {
    return Error(ErrorCode::kTooLarge, fmt::format("zip: member {} of {} bytes; the limit is {}",
                                                   name, entry.size, limits.max_entry_bytes))
        .At(file.path())
        .AtOffset(at);
  }
  if (entry.method == kMethodStored && entry.size != entry.compressed_size)
    return Malformed(file, at, fmt::format("stored member {} with two different sizes", name));
  if (entry.method == kMethodDeflated && entry.size / kMaxDeflateRatio > entry.compressed_size) {
    return Malformed(file, at,
                     fmt::format("{} bytes cannot inflate to the {} that member {} claims",
                                 entry.compressed_size, entry.size, name));
  }
  return {};
}

Result<std::vector<ZipEntry>> ReadEntries(const InputFile& file, const Directory& directory,
                                          const ZipLimits& limits) {
  MSPROBE_ASSIGN(const std::string block, ReadBlock(file, directory.offset, directory.size));
  std::vector<ZipEntry> entries;
  entries.reserve(static_cast<size_t>(directory.entries));
  size_t pos = 0;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    const uint64_t at = directory.offset + pos;
    if (block.size() - pos < kCentralSize)
      return Malformed(file, at, "the directory ends before its last member");
    const std::string_view record = std::string_view(block).substr(pos);
    if (Load<uint32_t>(record, 0) != kCentralSignature)
      return Malformed(file, at, "no directory record where one should be");
    const size_t name_size = Load<uint16_t>(record, 28);
    const size_t extra_size = Load<uint16_t>(record, 30);
    const size_t length = kCentralSize + name_size + extra_size + Load<uint16_t>(record, 32);
    if (record.size() < length) return Malformed(file, at, "the directory ends inside a member");
    ZipEntry entry;
    entry.name = record.substr(kCentralSize, name_size);
    entry.method = Load<uint16_t>(record, 10);
    entry.crc32 = Load<uint32_t>(record, 16);
    entry.compressed_size = Load<uint32_t>(record, 20);
    entry.size = Load<uint32_t>(record, 24);
    entry.header_offset = Load<uint32_t>(record, 42);
    uint32_t disk = Load<uint16_t>(record, 34);
    if (!ApplyZip64(record.substr(kCentralSize + name_size, extra_size), entry, disk))
      return Malformed(file, at, "a zip64 field is missing");
    if (disk != 0) return Unsupported(file, at, "several disks");
    constexpr uint16_t kEncrypted = 1u | 1u << 6 | 1u << 13;
    if ((Load<uint16_t>(record, 8) & kEncrypted) != 0)
      return Unsupported(file, at, fmt::format("member {} is encrypted", VisibleText(entry.name)));
    MSPROBE_TRY(CheckEntry(file, at, entry, limits));
    entries.push_back(std::move(entry));
    pos += length;
  }
  if (pos != block.size())
    return Malformed(file, directory.offset + pos, "more in the directory than it counts");
  return entries;
}

// Members must lie one behind the other, in any order, before the directory.
Status CheckLayout(const InputFile& file, uint64_t directory_offset,
                   std::vector<ZipEntry>& entries) {
  std::vector<uint32_t> order(entries.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return entries[a].header_offset < entries[b].header_offset;
  });
  for (size_t i = 0; i < order.size(); ++i) {
    ZipEntry& entry = entries[order[i]];
    const bool last = i + 1 == order.size();
    entry.limit =
        last ? directory_offset : std::min(directory_offset, entries[order[i + 1]].header_offset);
    const uint64_t fixed = kLocalSize + entry.name.size();
    const auto end = CheckedAdd(entry.compressed_size, fixed);
    if (entry.header_offset <= entry.limit && end && *end <= entry.limit - entry.header_offset)
      continue;
    return Malformed(file, entry.header_offset,
                     fmt::format("member {} {}", VisibleText(entry.name),
                                 last || entries[order[i + 1]].header_offset > directory_offset
                                     ? "reaches beyond the data of the archive"
                                     : "overlaps the next one"));
  }
  return {};
}

Result<std::string> Inflate(const InputFile& file, uint64_t offset, const ZipEntry& entry) {
  MSPROBE_ASSIGN(const std::string packed, ReadBlock(file, offset, entry.compressed_size));
  std::string out(static_cast<size_t>(entry.size), '\0');
  const std::unique_ptr<libdeflate_decompressor, decltype(&libdeflate_free_decompressor)> inflater(
      libdeflate_alloc_decompressor(), &libdeflate_free_decompressor);
  size_t used = 0;
  size_t made = 0;
  const libdeflate_result result = libdeflate_deflate_decompress_ex(
      inflater.get(), packed.data(), packed.size(), out.data(), out.size(), &used, &made);
  const std::string name = VisibleText(entry.name);
  if (result == LIBDEFLATE_INSUFFICIENT_SPACE)
    return Malformed(
        file, offset,
        fmt::format("member {} inflates to more than the {} bytes it claims", name, entry.size));
  if (result != LIBDEFLATE_SUCCESS)
    return Malformed(file, offset, fmt::format("member {} holds damaged deflate data", name));
  if (made != out.size() || used != packed.size())
    return Malformed(file, offset,
                     fmt::format("member {} inflates to {} bytes, not {}", name, made, out.size()));
  return out;
}

}  // namespace

Result<ZipReader> ZipReader::Open(const InputFile& file, const ZipLimits& limits) {
  MSPROBE_ASSIGN(const Directory directory, ReadEnd(file));
  if (directory.entries > limits.max_entries || directory.size > kMaxDirectoryBytes) {
    return Error(ErrorCode::kTooLarge, fmt::format("zip: a directory of {} members, {} bytes",
                                                   directory.entries, directory.size))
        .At(file.path());
  }
  if (directory.entries > directory.size / kCentralSize)
    return Malformed(file, directory.offset, "more members than the directory has room for");
  ZipReader reader;
  reader.file_ = &file;
  MSPROBE_ASSIGN(reader.entries_, ReadEntries(file, directory, limits));
  MSPROBE_TRY(CheckLayout(file, directory.offset, reader.entries_));
  const std::vector<ZipEntry>& entries = reader.entries_;
  reader.by_name_.resize(entries.size());
  std::iota(reader.by_name_.begin(), reader.by_name_.end(), 0u);
  std::sort(reader.by_name_.begin(), reader.by_name_.end(),
            [&](uint32_t a, uint32_t b) { return entries[a].name < entries[b].name; });
  return reader;
}

const ZipEntry* ZipReader::Find(std::string_view name) const {
  const auto first =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [&](uint32_t i, std::string_view n) { return entries_[i].name < n; });
  if (first == by_name_.end() || entries_[*first].name != name) return nullptr;
  const auto next = first + 1;
  if (next != by_name_.end() && entries_[*next].name == name) return nullptr;
  return &entries_[*first];
}

Result<uint64_t> ZipReader::DataStart(const ZipEntry& entry) const {
  const uint64_t at = entry.header_offset;
  MSPROBE_ASSIGN(const std::string header, ReadBlock(*file_, at, kLocalSize + entry.name.size()));
  const std::string name = VisibleText(entry.name);
  if (Load<uint32_t>(header, 0) != kLocalSignature)
    return Malformed(*file_, at,
                     fmt::format("no header of member {} where the directory says", name));
  const uint16_t name_size = Load<uint16_t>(header, 26);
  if (name_size != entry.name.size() || std::string_view(header).substr(kLocalSize) != entry.name)
    return Malformed(*file_, at, fmt::format("member {} has another name in its own header", name));
  if (Load<uint16_t>(header, 8) != entry.method)
    return Malformed(*file_, at,
                     fmt::format("member {} has another method in its own header", name));
  const uint16_t flags = Load<uint16_t>(header, 6);
  if ((flags & 1u) != 0)
    return Unsupported(*file_, at, fmt::format("member {} is encrypted", name));
  constexpr uint16_t kSizesFollow = 1u << 3;
  const uint32_t packed = Load<uint32_t>(header, 18);
  const uint32_t size = Load<uint32_t>(header, 22);
  const bool agrees = (packed == entry.compressed_size || packed == kMax32) &&
                      (size == entry.size || size == kMax32);
  if ((flags & kSizesFollow) == 0 && !agrees)
    return Malformed(*file_, at, fmt::format("member {} has another size in its own header", name));
  const uint64_t start = at + kLocalSize + name_size + Load<uint16_t>(header, 28);
  if (start > entry.limit || entry.compressed_size > entry.limit - start)
    return Malformed(*file_, at, fmt::format("member {} reaches into the next one", name));
  return start;
}

Result<uint64_t> ZipReader::DataOffset(const ZipEntry& entry) const {
  if (entry.method != kMethodStored) {
    return Unsupported(*file_, entry.header_offset,
                       fmt::format("member {} is compressed", VisibleText(entry.name)));
  }
  return DataStart(entry);
}

Result<std::string> ZipReader::Read(const ZipEntry& entry, uint64_t max_bytes) const {
  const std::string name = VisibleText(entry.name);
  if (entry.size > max_bytes) {
    return Error(ErrorCode::kTooLarge, fmt::format("zip: member {} of {} bytes; the limit is {}",
                                                   name, entry.size, max_bytes))
        .At(file_->path())
        .AtOffset(entry.header_offset);
  }
  if (entry.method != kMethodStored && entry.method != kMethodDeflated) {
    return Unsupported(*file_, entry.header_offset,
                       fmt::format("member {} is compressed by method {}", name, entry.method));
  }
  MSPROBE_ASSIGN(const uint64_t start, DataStart(entry));
  MSPROBE_ASSIGN(std::string data, entry.method == kMethodStored
                                       ? ReadBlock(*file_, start, entry.size)
                                       : Inflate(*file_, start, entry));
  if (libdeflate_crc32(0, data.data(), data.size()) != entry.crc32)
    return Malformed(*file_, start, fmt::format("member {} does not match its checksum", name));
  return data;
}

}  // namespace msprobe::archive
