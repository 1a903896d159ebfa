// Zip archives over positioned reads: own central-directory reader (hostile input), stored-only
// writer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace msprobe::archive {

struct ZipEntry {
  std::string name;
  uint16_t method = 0;  // 0 stored, 8 deflated
  uint32_t crc32 = 0;
  uint64_t compressed_size = 0;
  uint64_t size = 0;
  uint64_t header_offset = 0;  // of the local header
  uint64_t limit = 0;  // where the next member or the directory begins: header and data end before
};

struct ZipLimits {
  uint64_t max_entries = 10'000'000;
  uint64_t max_entry_bytes = 64ull << 30;  // declared size of one member
};

// The directory is read and checked whole at Open: zip64, no overlapping members, no sizes beyond
// the file, no encryption, one disk. Local headers are looked at when a member is used. Safe to
// share among threads. Errors: kMalformed (with offset), kTruncated (no end record), kUnsupported
// (encrypted, several disks, other methods than stored and deflate), kTooLarge.
class ZipReader {
 public:
  static Result<ZipReader> Open(const InputFile& file,
                                const ZipLimits& limits = {});  // keeps a pointer to `file`
  const std::vector<ZipEntry>& entries() const { return entries_; }
  const ZipEntry* Find(
      std::string_view name) const;  // exact; nullptr when absent or when the name occurs twice
  // Offset in the file of the first byte of a stored member's data. kUnsupported when it is
  // deflated.
  Result<uint64_t> DataOffset(const ZipEntry& entry) const;
  // The member's bytes, inflated with a cap of the declared size (a longer stream is kMalformed),
  // CRC checked.
  Result<std::string> Read(const ZipEntry& entry, uint64_t max_bytes) const;

 private:
  Result<uint64_t> DataStart(const ZipEntry& entry) const;

  const InputFile* file_ = nullptr;
  std::vector<ZipEntry> entries_;
  std::vector<uint32_t> by_name_;
};

// Stored members only, sizes known in advance, zip64 when needed; deterministic (fixed date).
class ZipWriter {
 public:
  // `align`: data of each member begins at a multiple of this many bytes (torch uses 64).
  explicit ZipWriter(AtomicFile& out, uint32_t align = 64) : out_(out), align_(align) {}
  Status Add(std::string_view name, Bytes data);
  Status Finish();  // writes the directory; the caller commits the file

 private:
  AtomicFile& out_;
  uint32_t align_;
  uint64_t position_ = 0;
  std::vector<ZipEntry> entries_;
};

}  // namespace msprobe::archive
