#include "archive/zip.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <libdeflate.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace msprobe::archive {
namespace {

class ZipTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/msprobe_zip_XXXXXX";
    dir_ = mkdtemp(name);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string Save(std::string_view bytes) {
    const std::string path = dir_ + "/x.zip";
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  std::string dir_;
};

template <class T>
void Put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

// One member as the test wants it, true or lying.
struct Member {
  std::string name = "a";
  std::string data = "hello";  // as stored in the file
  uint16_t method = 0;
  uint16_t flags = 0;
  uint64_t size = 5;            // claimed
  uint32_t crc = 0x3610a686u;   // of "hello" (zlib.crc32)
  std::string local_name = {};  // when not the same
  int64_t shift = 0;            // of the claimed header offset
  std::string local_extra = {};
  bool zip64 = false;  // sizes and offset in the zip64 field of the directory
};

void PutLocal(std::string& out, const Member& m) {
  const std::string& local = m.local_name.empty() ? m.name : m.local_name;
  Put(out, uint32_t{0x04034b50});
  Put(out, uint16_t{20});
  Put(out, m.flags);
  Put(out, m.method);
  Put(out, uint32_t{0});
  Put(out, m.crc);
  Put(out, static_cast<uint32_t>(m.data.size()));
  Put(out, static_cast<uint32_t>(m.size));
  Put(out, static_cast<uint16_t>(local.size()));
  Put(out, static_cast<uint16_t>(m.local_extra.size()));
  out += local + m.local_extra + m.data;
}

// `at`: where the directory says that the member begins.
void PutDirectory(std::string& directory, const Member& m, uint64_t at) {
  const auto packed = static_cast<uint32_t>(m.data.size());
  std::string extra;
  if (m.zip64) {
    Put(extra, uint16_t{1});
    Put(extra, uint16_t{24});
    Put(extra, m.size);
    Put(extra, uint64_t{packed});
    Put(extra, at);
  }
  Put(directory, uint32_t{0x02014b50});
  Put(directory, uint32_t{20 | 20 << 16});
  Put(directory, m.flags);
  Put(directory, m.method);
  Put(directory, uint32_t{0});
  Put(directory, m.crc);
  Put(directory, m.zip64 ? 0xFFFFFFFFu : packed);
  Put(directory, m.zip64 ? 0xFFFFFFFFu : static_cast<uint32_t>(m.size));
  Put(directory, static_cast<uint16_t>(m.name.size()));
  Put(directory, static_cast<uint16_t>(extra.size()));
  directory.append(10, '\0');
  Put(directory, m.zip64 ? 0xFFFFFFFFu : static_cast<uint32_t>(at));
  directory += m.name + extra;
}

void PutEnd64(std::string& out, size_t members, size_t directory, uint64_t offset) {
  const uint64_t record = out.size();
  Put(out, uint32_t{0x06064b50});
  Put(out, uint64_t{44});
  Put(out, uint32_t{45 | 45 << 16});
  Put(out, uint64_t{0});
  Put(out, uint64_t{members});
  Put(out, uint64_t{members});
  Put(out, uint64_t{directory});
  Put(out, offset);
  Put(out, uint32_t{0x07064b50});
  Put(out, uint32_t{0});
  Put(out, record);
  Put(out, uint32_t{1});
}

std::string Zip(const std::vector<Member>& members, bool end64 = false) {
  std::string out;
  std::string directory;
  for (const Member& m : members) {
    PutDirectory(directory, m, static_cast<uint64_t>(static_cast<int64_t>(out.size()) + m.shift));
    PutLocal(out, m);
  }
  const uint64_t offset = out.size();
  out += directory;
  if (end64) PutEnd64(out, members.size(), directory.size(), offset);
  Put(out, uint32_t{0x06054b50});
  Put(out, uint32_t{0});
  Put(out, static_cast<uint16_t>(end64 ? 0xFFFF : members.size()));
  Put(out, static_cast<uint16_t>(end64 ? 0xFFFF : members.size()));
  Put(out, end64 ? 0xFFFFFFFFu : static_cast<uint32_t>(directory.size()));
  Put(out, end64 ? 0xFFFFFFFFu : static_cast<uint32_t>(offset));
  Put(out, uint16_t{0});
  return out;
}

std::string Deflate(std::string_view text) {
  libdeflate_compressor* c = libdeflate_alloc_compressor(6);
  std::string out(libdeflate_deflate_compress_bound(c, text.size()), '\0');
  out.resize(libdeflate_deflate_compress(c, text.data(), text.size(), out.data(), out.size()));
  libdeflate_free_compressor(c);
  return out;
}

// Opens, and reads every member; the first error, or none.
std::optional<Error> FirstError(const std::string& path, const ZipLimits& limits = {}) {
  const auto file = InputFile::Open(path);
  const auto zip = ZipReader::Open(*file, limits);
  if (!zip.ok()) return zip.error();
  for (const ZipEntry& entry : zip->entries()) {
    const auto data = zip->Read(entry, 1 << 20);
    if (!data.ok()) return data.error();
  }
  return std::nullopt;
}

#define EXPECT_REFUSED(bytes, expected_code, text)                                   \
  do {                                                                               \
    const auto refused_ = FirstError(Save(bytes));                                   \
    ASSERT_TRUE(refused_.has_value());                                               \
    EXPECT_EQ(refused_->code, expected_code) << refused_->ToString();                \
    EXPECT_NE(refused_->message.find(text), std::string::npos) << refused_->message; \
    EXPECT_FALSE(refused_->path.empty());                                            \
  } while (false)

TEST_F(ZipTest, ReadsStoredAndDeflated) {
  Member packed{.name = "b", .data = Deflate("hello"), .method = 8};
  for (const bool end64 : {false, true}) {
    const auto file = InputFile::Open(Save(Zip({Member{}, packed}, end64)));
    const auto zip = ZipReader::Open(*file);
    ASSERT_TRUE(zip.ok()) << zip.error().ToString();
    ASSERT_EQ(zip->entries().size(), 2u);
    EXPECT_EQ(*zip->Read(*zip->Find("a"), 5), "hello");
    EXPECT_EQ(*zip->Read(*zip->Find("b"), 5), "hello");
    EXPECT_EQ(*zip->DataOffset(*zip->Find("a")), 31u);
    EXPECT_EQ(zip->DataOffset(*zip->Find("b")).error().code, ErrorCode::kUnsupported);
    EXPECT_EQ(zip->Read(*zip->Find("a"), 4).error().code, ErrorCode::kTooLarge);
    EXPECT_EQ(zip->Find("c"), nullptr);
  }
}

TEST_F(ZipTest, ReadsZip64Fields) {
  Member second{.name = "b", .zip64 = true};
  EXPECT_FALSE(FirstError(Save(Zip({Member{}, second}))).has_value());
}

TEST_F(ZipTest, DuplicateNamesAreNotFound) {
  const auto file = InputFile::Open(Save(Zip({Member{}, Member{}})));
  const auto zip = ZipReader::Open(*file);
  ASSERT_TRUE(zip.ok());
  EXPECT_EQ(zip->entries().size(), 2u);
  EXPECT_EQ(zip->Find("a"), nullptr);
}

TEST_F(ZipTest, RefusesLyingSizes) {
  EXPECT_REFUSED(Zip({{.size = 6}}), ErrorCode::kMalformed, "two different sizes");
  EXPECT_REFUSED(Zip({{.size = uint64_t{1} << 62, .zip64 = true}}), ErrorCode::kTooLarge,
                 "the limit is");
  EXPECT_REFUSED(Zip({{.data = Deflate("hello"), .method = 8, .size = 4}}), ErrorCode::kMalformed,
                 "more than the 4 bytes");
  EXPECT_REFUSED(Zip({{.data = Deflate("hello"), .method = 8, .size = 6}}), ErrorCode::kMalformed,
                 "inflates to 5 bytes, not 6");
  EXPECT_REFUSED(Zip({{.data = Deflate("hello") + "x", .method = 8}}), ErrorCode::kMalformed,
                 "inflates to");
}

TEST_F(ZipTest, RefusesBombsBeforeAllocating) {
  EXPECT_REFUSED(Zip({{.data = Deflate("hello"), .method = 8, .size = 4'000'000'000u}}),
                 ErrorCode::kMalformed, "cannot inflate to");
}

TEST_F(ZipTest, RefusesOverlapsAndOffsetsOutside) {
  EXPECT_REFUSED(Zip({Member{}, {.name = "b", .shift = -4}}), ErrorCode::kMalformed, "overlaps");
  EXPECT_REFUSED(Zip({Member{}, {.name = "b", .shift = -36}}), ErrorCode::kMalformed, "overlaps");
  EXPECT_REFUSED(Zip({{.shift = 1}}), ErrorCode::kMalformed, "beyond the data");
  EXPECT_REFUSED(Zip({{.shift = 1'000'000}}), ErrorCode::kMalformed, "beyond the data");
  EXPECT_REFUSED(Zip({{.shift = INT64_MAX, .zip64 = true}}), ErrorCode::kMalformed,
                 "beyond the data");
}

TEST_F(ZipTest, RefusesEncryption) {
  EXPECT_REFUSED(Zip({{.flags = 1}}), ErrorCode::kUnsupported, "encrypted");
}

TEST_F(ZipTest, RefusesOtherMethods) {
  EXPECT_REFUSED(Zip({{.method = 12}}), ErrorCode::kUnsupported, "method 12");
}

TEST_F(ZipTest, RefusesLocalHeadersThatDisagree) {
  EXPECT_REFUSED(Zip({{.local_name = "b"}}), ErrorCode::kMalformed, "another name");
  std::string bytes = Zip({Member{}});
  bytes[8] = 8;
  EXPECT_REFUSED(bytes, ErrorCode::kMalformed, "another method");
  bytes = Zip({Member{}});
  bytes[22] = 4;
  EXPECT_REFUSED(bytes, ErrorCode::kMalformed, "another size");
  bytes = Zip({Member{}});
  bytes[0] = 'X';
  EXPECT_REFUSED(bytes, ErrorCode::kMalformed, "no header");
  bytes = Zip({Member{}});
  bytes[28] = 1;  // the extra field pushes the data into the directory
  EXPECT_REFUSED(bytes, ErrorCode::kMalformed, "reaches into");
}

TEST_F(ZipTest, RefusesWrongChecksum) {
  EXPECT_REFUSED(Zip({{.crc = 1}}), ErrorCode::kMalformed, "checksum");
}

TEST_F(ZipTest, RefusesDamagedDeflate) {
  EXPECT_REFUSED(Zip({{.data = "\x07zzz", .method = 8}}), ErrorCode::kMalformed, "damaged");
}

TEST_F(ZipTest, RefusesADirectoryThatLies) {
  std::string bytes = Zip({Member{}});
  bytes[bytes.size() - 14] = 2;  // members on this disk
  EXPECT_REFUSED(bytes, ErrorCode::kMalformed, "two different counts");
  bytes[bytes.size() - 12] = 2;
  EXPECT_REFUSED(bytes, ErrorCode::kMalformed, "more members");
  bytes = Zip({Member{}, {.name = "b"}});
  bytes[bytes.size() - 14] = bytes[bytes.size() - 12] = 1;
  EXPECT_REFUSED(bytes, ErrorCode::kMalformed, "more in the directory");
  bytes = Zip({Member{}});
  bytes[bytes.size() - 18] = 1;  // disk number
  EXPECT_REFUSED(bytes, ErrorCode::kUnsupported, "disks");
  bytes = Zip({Member{}});
  bytes[bytes.size() - 5] = 1;  // directory offset + 65536
  EXPECT_REFUSED(bytes, ErrorCode::kMalformed, "outside");
}

TEST_F(ZipTest, LimitsCountAndSize) {
  ZipLimits limits;
  limits.max_entries = 1;
  EXPECT_EQ(FirstError(Save(Zip({Member{}, {.name = "b"}})), limits)->code, ErrorCode::kTooLarge);
  limits = {};
  limits.max_entry_bytes = 4;
  EXPECT_EQ(FirstError(Save(Zip({Member{}})), limits)->code, ErrorCode::kTooLarge);
}

TEST_F(ZipTest, EveryTruncationIsRefused) {
  const std::string bytes =
      Zip({Member{}, {.name = "b", .data = Deflate("hello"), .method = 8}}, true);
  for (size_t n = 0; n < bytes.size(); ++n)
    EXPECT_TRUE(FirstError(Save(bytes.substr(0, n))).has_value()) << n;
}

TEST_F(ZipTest, EveryFlippedByteIsRefusedOrHarmless) {
  const std::string bytes =
      Zip({Member{}, {.name = "b", .data = Deflate("hello"), .method = 8}}, true);
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const int mask : {0x01, 0x80, 0xFF}) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ mask);
      const auto file = InputFile::Open(Save(changed));
      const auto zip = ZipReader::Open(*file);
      if (!zip.ok()) continue;
      for (const ZipEntry& entry : zip->entries()) {
        const auto data = zip->Read(entry, 1 << 20);
        if (data.ok()) {
          EXPECT_EQ(*data, "hello") << i;
        }
      }
    }
  }
}

TEST_F(ZipTest, WriterAlignsAndRoundTrips) {
  const std::string path = dir_ + "/w.zip";
  const std::string big(1000, 'q');
  {
    auto out = AtomicFile::Create(path);
    ASSERT_TRUE(out.ok());
    ZipWriter writer(*out);
    ASSERT_TRUE(writer.Add("archive/data.pkl", AsBytes("hello")).ok());
    ASSERT_TRUE(writer.Add("archive/data/0", AsBytes(big)).ok());
    ASSERT_TRUE(writer.Add("empty", {}).ok());
    ASSERT_TRUE(writer.Finish().ok());
    ASSERT_TRUE(out->Commit().ok());
  }
  const auto file = InputFile::Open(path);
  const auto zip = ZipReader::Open(*file);
  ASSERT_TRUE(zip.ok()) << zip.error().ToString();
  for (const ZipEntry& entry : zip->entries()) EXPECT_EQ(*zip->DataOffset(entry) % 64, 0u);
  EXPECT_EQ(*zip->Read(*zip->Find("archive/data.pkl"), 100), "hello");
  EXPECT_EQ(*zip->Read(*zip->Find("archive/data/0"), 1000), big);
  EXPECT_EQ(*zip->Read(*zip->Find("empty"), 0), "");
}

TEST_F(ZipTest, WriterUsesZip64ForManyMembers) {
  const std::string path = dir_ + "/many.zip";
  {
    auto out = AtomicFile::Create(path);
    ZipWriter writer(*out, 1);
    for (int i = 0; i < 65'536; ++i)
      ASSERT_TRUE(writer.Add(fmt::format("m{}", i), AsBytes("x")).ok());
    ASSERT_TRUE(writer.Finish().ok());
    ASSERT_TRUE(out->Commit().ok());
  }
  const auto file = InputFile::Open(path);
  const auto zip = ZipReader::Open(*file);
  ASSERT_TRUE(zip.ok()) << zip.error().ToString();
  EXPECT_EQ(zip->entries().size(), 65'536u);
  EXPECT_EQ(*zip->Read(*zip->Find("m65535"), 1), "x");
}

}  // namespace
}  // namespace msprobe::archive
