#include <libdeflate.h>

#include "archive/zip.h"
#include "archive/zip_format.h"

namespace msprobe::archive {
namespace {

constexpr uint16_t kVersion = 20;
constexpr uint16_t kVersion64 = 45;
constexpr uint16_t kDate = 0x21;            // 1980-01-01, the first that the format knows
constexpr uint16_t kPaddingExtra = 0x4246;  // "FB", the padding field that torch.save writes

template <class T>
void Put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

uint32_t Cut32(uint64_t v) { return v >= kMax32 ? kMax32 : static_cast<uint32_t>(v); }

std::string CentralRecord(const ZipEntry& e) {
  std::string fields;
  if (e.size >= kMax32) Put(fields, e.size);
  if (e.compressed_size >= kMax32) Put(fields, e.compressed_size);
  if (e.header_offset >= kMax32) Put(fields, e.header_offset);
  std::string extra;
  if (!fields.empty()) {
    Put(extra, kZip64Extra);
    Put(extra, static_cast<uint16_t>(fields.size()));
    extra += fields;
  }
  const uint16_t version = fields.empty() ? kVersion : kVersion64;
  std::string out;
  Put(out, kCentralSignature);
  Put(out, version);  // made by
  Put(out, version);  // needed
  Put(out, uint16_t{0});
  Put(out, e.method);
  Put(out, uint16_t{0});  // time
  Put(out, kDate);
  Put(out, e.crc32);
  Put(out, Cut32(e.compressed_size));
  Put(out, Cut32(e.size));
  Put(out, static_cast<uint16_t>(e.name.size()));
  Put(out, static_cast<uint16_t>(extra.size()));
  Put(out, uint16_t{0});  // comment
  Put(out, uint16_t{0});  // disk
  Put(out, uint16_t{0});  // attributes
  Put(out, uint32_t{0});
  Put(out, Cut32(e.header_offset));
  out += e.name;
  out += extra;
  return out;
}

std::string End64(uint64_t entries, uint64_t size, uint64_t offset) {
  std::string out;
  Put(out, kEnd64Signature);
  Put(out, kEnd64Size - 12);
  Put(out, kVersion64);
  Put(out, kVersion64);
  Put(out, uint32_t{0});
  Put(out, uint32_t{0});
  Put(out, entries);
  Put(out, entries);
  Put(out, size);
  Put(out, offset);
  Put(out, kLocator64Signature);
  Put(out, uint32_t{0});
  Put(out, offset + size);
  Put(out, uint32_t{1});
  return out;
}

}  // namespace

Status ZipWriter::Add(std::string_view name, Bytes data) {
  if (name.empty() || name.size() > kMax16)
    return Error(ErrorCode::kInvalidArgument, "zip: a member's name has 1 to 65535 bytes");
  ZipEntry entry;
  entry.name = name;
  entry.crc32 = libdeflate_crc32(0, data.data(), data.size());
  entry.size = entry.compressed_size = data.size();
  entry.header_offset = position_;
  std::string extra;
  const bool large = data.size() >= kMax32;
  if (large) {
    Put(extra, kZip64Extra);
    Put(extra, uint16_t{16});
    Put(extra, entry.size);
    Put(extra, entry.compressed_size);
  }
  if (align_ > 1) {
    const uint64_t start = position_ + kLocalSize + name.size() + extra.size() + 4;
    const uint64_t padding = (align_ - start % align_) % align_;
    Put(extra, kPaddingExtra);
    Put(extra, static_cast<uint16_t>(padding));
    extra.append(static_cast<size_t>(padding), 'Z');
  }
  std::string header;
  Put(header, kLocalSignature);
  Put(header, large ? kVersion64 : kVersion);
  Put(header, uint16_t{0});  // flags
  Put(header, entry.method);
  Put(header, uint16_t{0});  // time
  Put(header, kDate);
  Put(header, entry.crc32);
  Put(header, Cut32(entry.compressed_size));
  Put(header, Cut32(entry.size));
  Put(header, static_cast<uint16_t>(name.size()));
  Put(header, static_cast<uint16_t>(extra.size()));
  header += name;
  header += extra;
  MSPROBE_TRY(out_.Write(header));
  MSPROBE_TRY(out_.Write(AsText(data)));
  position_ += header.size() + data.size();
  entries_.push_back(std::move(entry));
  return {};
}

Status ZipWriter::Finish() {
  const uint64_t offset = position_;
  uint64_t size = 0;
  for (const ZipEntry& entry : entries_) {
    const std::string record = CentralRecord(entry);
    size += record.size();
    MSPROBE_TRY(out_.Write(record));
  }
  const bool large = offset >= kMax32 || size >= kMax32 || entries_.size() >= kMax16;
  std::string end;
  if (large) end = End64(entries_.size(), size, offset);
  const auto count = static_cast<uint16_t>(entries_.size() >= kMax16 ? kMax16 : entries_.size());
  Put(end, kEndSignature);
  Put(end, uint16_t{0});
  Put(end, uint16_t{0});
  Put(end, count);
  Put(end, count);
  Put(end, Cut32(size));
  Put(end, Cut32(offset));
  Put(end, uint16_t{0});
  MSPROBE_TRY(out_.Write(end));
  position_ += size + end.size();
  return {};
}

}  // namespace msprobe::archive
