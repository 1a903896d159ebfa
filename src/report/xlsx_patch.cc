#include "report/xlsx_patch.h"

#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/file.h"

namespace msprobe::report {
namespace {

constexpr size_t kEndBytes = 22, kCentralBytes = 46,
                 kLocalBytes = 30;  // fixed parts of the records (APPNOTE 4.3)
constexpr uint32_t kEndSignature = 0x06054B50, kCentralSignature = 0x02014B50;
constexpr uint32_t kMaxMember = 16u << 20;

uint32_t Get32(const std::string& s, size_t at) {
  uint32_t v;
  std::memcpy(&v, s.data() + at, 4);
  return v;
}
uint16_t Get16(const std::string& s, size_t at) {
  uint16_t v;
  std::memcpy(&v, s.data() + at, 2);
  return v;
}
void Set32(std::string& s, size_t at, uint32_t v) { std::memcpy(s.data() + at, &v, 4); }
void Set16(std::string& s, size_t at, uint16_t v) { std::memcpy(s.data() + at, &v, 2); }

struct ZipFile {
  int fd;
  const std::string& path;

  Result<std::string> Read(uint64_t offset, size_t size) const {
    std::string out(size, '\0');
    for (size_t done = 0; done < size;) {
      const ssize_t n =
          pread(fd, out.data() + done, size - done, static_cast<off_t>(offset + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoError(errno, "read", path);
      if (n == 0) return Unexpected();
      done += static_cast<size_t>(n);
    }
    return out;
  }
  Status Write(uint64_t offset, std::string_view data) const {
    if (lseek(fd, static_cast<off_t>(offset), SEEK_SET) < 0)
      return ErrnoError(errno, "seek in", path);
    Status written = WriteAll(fd, data);
    if (!written.ok()) return std::move(written).error().At(path);
    return {};
  }
  Error Unexpected() const {
    return Error(ErrorCode::kInternal, "the workbook has not the structure it was written with")
        .At(path);
  }
};

Result<std::string> Inflate(const ZipFile& zip, std::string_view data, size_t size) {
  std::string out(size, '\0');
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return zip.Unexpected();
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
  stream.avail_in = static_cast<uInt>(data.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(size);
  const int rc = inflate(&stream, Z_FINISH);
  const bool whole = rc == Z_STREAM_END && stream.total_out == size;
  inflateEnd(&stream);
  if (!whole) return zip.Unexpected();
  return out;
}

// The text of the member whose central record is at `at`.
Result<std::string> MemberText(const ZipFile& zip, const std::string& central, size_t at) {
  const uint32_t packed = Get32(central, at + 20), size = Get32(central, at + 24);
  const uint64_t offset = Get32(central, at + 42);
  if (packed > kMaxMember || size > kMaxMember) return zip.Unexpected();
  MSPROBE_ASSIGN(const std::string local, zip.Read(offset, kLocalBytes));
  const uint64_t data_at = offset + kLocalBytes + Get16(local, 26) + Get16(local, 28);
  MSPROBE_ASSIGN(std::string data, zip.Read(data_at, packed));
  if (Get16(central, at + 10) == 0) return data;
  return Inflate(zip, data, size);
}

size_t ReplaceAll(std::string& text, std::string_view from, std::string_view to) {
  size_t count = 0;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
    ++count;
  }
  return count;
}

// Offset of the central record of `name`, or npos.
size_t FindMember(const std::string& central, std::string_view name) {
  for (size_t at = 0; at + kCentralBytes <= central.size();) {
    if (Get32(central, at) != kCentralSignature) break;
    const size_t length = Get16(central, at + 28);
    if (std::string_view(central).substr(at + kCentralBytes, length) == name) return at;
    at += kCentralBytes + length + Get16(central, at + 30) + Get16(central, at + 32);
  }
  return std::string::npos;
}

}  // namespace

Status ReplaceInZipMember(int fd, const std::string& path, std::string_view name,
                          std::string_view from, std::string_view to) {
  const ZipFile zip{fd, path};
  struct stat st{};
  if (fstat(fd, &st) != 0) return ErrnoError(errno, "read", path);
  const auto file_size = static_cast<uint64_t>(st.st_size);
  if (file_size < kEndBytes) return zip.Unexpected();
  MSPROBE_ASSIGN(std::string end, zip.Read(file_size - kEndBytes, kEndBytes));
  if (Get32(end, 0) != kEndSignature) return zip.Unexpected();
  const uint64_t central_at = Get32(end, 16), central_size = Get32(end, 12);
  if (central_at >= UINT32_MAX - (2 * kMaxMember) ||
      central_at + central_size + kEndBytes != file_size)
    return {};
  MSPROBE_ASSIGN(std::string central, zip.Read(central_at, central_size));
  const size_t at = FindMember(central, name);
  if (at == std::string::npos) return zip.Unexpected();
  MSPROBE_ASSIGN(std::string text, MemberText(zip, central, at));
  if (ReplaceAll(text, from, to) == 0) return {};

  const auto size = static_cast<uint32_t>(text.size());
  const auto crc =
      static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(text.data()), size));
  // Stored, sizes in the header: method 0 and no data descriptor.
  std::string local(kLocalBytes, '\0');
  Set32(local, 0, 0x04034B50);
  local.replace(4, 26, central, at + 6, 26);  // version needed … length of the extra field
  for (std::string* record : {&local, &central}) {
    const size_t base = record == &local ? 4 : at + 6;
    Set16(*record, base + 2, static_cast<uint16_t>(Get16(*record, base + 2) & ~8u));
    Set16(*record, base + 4, 0);
    Set32(*record, base + 10, crc);
    Set32(*record, base + 14, size);
    Set32(*record, base + 18, size);
  }
  Set16(local, 28, 0);  // no extra field
  Set32(central, at + 42, static_cast<uint32_t>(central_at));
  const uint64_t new_central_at = central_at + kLocalBytes + name.size() + size;
  Set32(end, 16, static_cast<uint32_t>(new_central_at));
  return zip.Write(central_at, local + std::string(name) + text + central + end);
}

}  // namespace msprobe::report
