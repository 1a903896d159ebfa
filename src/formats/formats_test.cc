// Files written by PyTorch, NumPy and safetensors (tests/data/formats), against what these
// libraries say they hold.
#include <gmock/gmock.h>

#include <map>
#include <thread>

#include "formats/test_support.h"
#include "json/json.h"

namespace msprobe::formats {
namespace {

using ::testing::HasSubstr;

const std::string kDir = MSPROBE_TEST_DATA "/formats/";

const json::Document& Manifest() {
  static const auto* const document =
      new Result<json::Document>(json::ParseDocumentFile(kDir + "manifest.json"));
  return document->value();
}

std::string Hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    const auto b = static_cast<unsigned char>(c);
    out += kDigits[b >> 4];
    out += kDigits[b & 15];
  }
  return out;
}

void ExpectTensor(const TensorFile& file, const StoredTensor& got, const json::Value& want) {
  EXPECT_EQ(got.name, want.Find("name")->as_string());
  EXPECT_EQ(ShortName(got.dtype), want.Find("dtype")->as_string());
  EXPECT_EQ(got.requires_grad, want.Find("requires_grad")->as_bool());
  EXPECT_EQ(got.contiguous, want.Find("contiguous")->as_bool());
  Shape shape;
  for (const json::Value& extent : *want.Find("shape")) shape.push_back(extent.as_int());
  EXPECT_EQ(got.shape, shape);
  EXPECT_EQ(Hex(ReadAllText(file, got)), want.Find("hex")->as_string());
  if (!got.contiguous || got.num_elements < 3) return;
  std::string middle(ItemSize(got.dtype), '\0');
  EXPECT_TRUE(file.ReadElements(got, 2, 1, reinterpret_cast<std::byte*>(middle.data())).ok());
  EXPECT_EQ(Hex(middle),
            want.Find("hex")->as_string().substr(4 * ItemSize(got.dtype), 2 * ItemSize(got.dtype)));
}

TEST(FormatsFixtures, EveryFileOfTheManifestReadsAsItsLibrarySays) {
  std::map<std::string, int> formats;
  for (const json::Value& item : Manifest().root()) {
    if (item.Find("error") != nullptr) continue;
    const std::string name(item.Find("file")->as_string());
    SCOPED_TRACE(name);
    const auto file = TensorFile::Open(kDir + name);
    ASSERT_TRUE(file.ok()) << file.error().ToString();
    EXPECT_EQ(file->format(), item.Find("format")->as_string());
    EXPECT_EQ(file->holds(), item.Find("holds")->as_string());
    const json::Value& tensors = *item.Find("tensors");
    ASSERT_EQ(file->tensors().size(), tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) ExpectTensor(*file, file->tensors()[i], tensors[i]);
    const auto single = SingleTensor(*file);
    EXPECT_EQ(single.ok(), item.Find("holds")->as_string().empty());
    if (!single.ok()) {
      EXPECT_EQ(single.error().code, ErrorCode::kUnsupported);
      EXPECT_THAT(single.error().message, HasSubstr(item.Find("holds")->as_string()));
    }
    ++formats[std::string(file->format())];
  }
  EXPECT_GE(formats["pt"], 21 + 6 + 10);  // all dtypes, the legacy stream, the layouts
  EXPECT_GE(formats["npy"], 14 + 4);
  EXPECT_EQ(formats["npz"], 3);
  EXPECT_EQ(formats["safetensors"], 2);
}

TEST(FormatsFixtures, EveryRefusedFileIsRefusedWithItsReason) {
  std::filesystem::remove("/tmp/msprobe_formats_evil");
  int count = 0;
  for (const json::Value& item : Manifest().root()) {
    if (item.Find("error") == nullptr) continue;
    const std::string name(item.Find("file")->as_string());
    SCOPED_TRACE(name);
    const auto file = TensorFile::Open(kDir + name);
    ASSERT_FALSE(file.ok());
    EXPECT_EQ(ErrorCodeName(file.error().code), item.Find("error")->as_string());
    EXPECT_THAT(file.error().message, HasSubstr(item.Find("text")->as_string()));
    EXPECT_EQ(file.error().path, kDir + name);
    ++count;
  }
  EXPECT_GE(count, 19);
  EXPECT_FALSE(std::filesystem::exists("/tmp/msprobe_formats_evil"));
}

TEST_F(FormatsTest, ContentDecidesNotTheExtension) {
  const auto file = TensorFile::Open(Save(Slurp(kDir + "f4.npy"), "x.pt"));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->format(), "npy");
}

TEST(FormatsFixtures, DeflatedTensorsReadInParallel) {
  const auto file = TensorFile::Open(kDir + "deflated.npz");
  ASSERT_TRUE(file.ok());
  EXPECT_FALSE(file->tensors()[0].stored);
  std::vector<std::string> results(8);
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < results.size(); ++i)
      threads.emplace_back([&, i] { results[i] = ReadAllText(*file, file->tensors()[i % 2]); });
  }
  for (size_t i = 2; i < results.size(); ++i) EXPECT_EQ(results[i], results[i % 2]);
  EXPECT_EQ(results[0], RawOf<float>({0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(results[1], RawOf<int16_t>({0, 1, 2, 3}));
}

TEST(FormatsFixtures, ElementsOutsideTheTensorAreRefused) {
  const auto file = TensorFile::Open(kDir + "f4.npy");
  ASSERT_TRUE(file.ok());
  const StoredTensor& t = file->tensors()[0];
  std::byte out[64];
  for (const auto& [first, count] : std::vector<std::pair<int64_t, int64_t>>{
           {-1, 1}, {0, 7}, {6, 1}, {7, 0}, {0, -1}, {INT64_MAX, 1}, {1, INT64_MAX}})
    EXPECT_EQ(file->ReadElements(t, first, count, out).error().code, ErrorCode::kInvalidArgument)
        << first;
  EXPECT_TRUE(file->ReadElements(t, 6, 0, out).ok());
  const auto strided = TensorFile::Open(kDir + "transposed.pt");
  EXPECT_EQ(strided->ReadElements(strided->tensors()[0], 0, 1, out).error().code,
            ErrorCode::kInvalidArgument);
}

// Strided layouts over more than one window, against a plain copy loop.
TEST_F(FormatsTest, GatherOfLargeStridedTensors) {
  constexpr int64_t kRows = 700, kColumns = 900;
  std::vector<float> values(static_cast<size_t>(kRows * kColumns));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const std::string header = "{'descr': '<f4', 'fortran_order': True, 'shape': (900, 700), }";
  std::string npy("\x93NUMPY\x01\x00", 8);
  npy += Raw(static_cast<uint16_t>(header.size())) + header;
  npy.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  const auto file = TensorFile::Open(Save(npy));
  ASSERT_TRUE(file.ok()) << file.error().ToString();
  const StoredTensor& t = file->tensors()[0];
  EXPECT_FALSE(t.contiguous);
  std::vector<float> got(values.size());
  ASSERT_TRUE(file->ReadAll(t, reinterpret_cast<std::byte*>(got.data())).ok());
  for (int64_t r = 0; r < kColumns; ++r) {
    for (int64_t c = 0; c < kRows; ++c)
      ASSERT_EQ(got[static_cast<size_t>(r * kRows + c)], static_cast<float>(c * kColumns + r));
  }
}

// ---- truncation and damage
// --------------------------------------------------------------------------------------------------

// Opens and reads everything; "" after an error.
std::string TryRead(const std::string& path) {
  const auto file = TensorFile::Open(path);
  if (!file.ok()) {
    EXPECT_EQ(file.error().path, path);
    EXPECT_FALSE(file.error().message.empty());
    return "";
  }
  std::string all;
  for (const StoredTensor& t : file->tensors()) {
    if (t.num_elements > 1000) continue;  // a damaged shape over a stride of 0
    std::string out(static_cast<size_t>(t.num_elements) * ItemSize(t.dtype), '\0');
    if (file->ReadAll(t, reinterpret_cast<std::byte*>(out.data())).ok()) all += out;
  }
  return all;
}

constexpr const char* kSamples[] = {
    "transposed.pt",   "float32_legacy.pt", "uint16.pt",     "deflated.pt",  "dict.pt",
    "big_f4.npy",      "version2.npy",      "fortran.npy",   "deflated.npz", "stored.npz",
    "one.safetensors", "all.safetensors",   "state_dict.pt", "attribute.pt"};

TEST_F(FormatsTest, TruncationAtEveryByteIsAnError) {
  for (const char* const sample : kSamples) {
    const std::string path = Save(Slurp(kDir + sample));
    ASSERT_NE(TryRead(path), "");
    for (auto n = std::filesystem::file_size(path); n-- > 0;) {
      std::filesystem::resize_file(path, n);
      ASSERT_EQ(TryRead(path), "") << sample << " " << n;
    }
  }
}

TEST_F(FormatsTest, FlippedBytesNeverCrash) {
  for (const char* const sample : kSamples) {
    const std::string bytes = Slurp(kDir + sample);
    const std::string path = Save(bytes);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const auto put = [&](size_t at, char c) {
      file.seekp(static_cast<std::streamoff>(at)).put(c).flush();
    };
    for (size_t i = 0; i < bytes.size(); ++i) {
      put(i, static_cast<char>(bytes[i] ^ (i % 2 == 0 ? 0xFF : 1 << (i % 8))));
      TryRead(path);
      put(i, bytes[i]);
    }
    EXPECT_TRUE(file.good());
  }
}

TEST_F(FormatsTest, TruncatedAndUnknownStarts) {
  const auto error = [&](std::string_view bytes) { return TensorFile::Open(Save(bytes)).error(); };
  EXPECT_EQ(error("").code, ErrorCode::kTruncated);
  EXPECT_EQ(error("PK\x03").code, ErrorCode::kTruncated);
  EXPECT_EQ(error("\x93NU").code, ErrorCode::kTruncated);
  EXPECT_EQ(error("\x80\x02\x8a").code, ErrorCode::kTruncated);
  EXPECT_EQ(error("hello, world").code, ErrorCode::kUnsupported);
  EXPECT_EQ(TensorFile::Open("/nonexistent/t.pt").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(TensorFile::Open("/tmp").error().code, ErrorCode::kNotRegularFile);
}

TEST_F(FormatsTest, LimitOfBytesHoldsForFilesAndElements) {
  Limits limits;
  limits.max_bytes = 100;
  EXPECT_EQ(TensorFile::Open(kDir + "f4.npy", limits).error().code, ErrorCode::kTooLarge);
}

}  // namespace
}  // namespace msprobe::formats
