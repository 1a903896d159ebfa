// Round trips of WritePt and WriteNpy; that PyTorch and NumPy read them is
// tests/python/test_formats_torch.py's.
#include <gmock/gmock.h>

#include "formats/test_support.h"

namespace msprobe::formats {
namespace {

TEST_F(FormatsTest, WrittenPtReadsBackForEveryDType) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    SCOPED_TRACE(ShortName(dtype));
    std::string data(6 * ItemSize(dtype), '\0');
    for (size_t k = 0; k < data.size(); ++k)
      data[k] = static_cast<char>(dtype == DType::kBool ? k % 2 : 7 * k + 1);
    const std::string path = dir_ + "/w.pt";
    const Shape shape = {2, 3};
    ASSERT_TRUE(WritePt(path, dtype, shape, true, AsBytes(data)).ok());
    const auto file = TensorFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.error().ToString();
    const auto tensor = SingleTensor(*file);
    ASSERT_TRUE(tensor.ok());
    EXPECT_EQ(tensor->dtype, dtype);
    EXPECT_EQ(tensor->shape, shape);
    EXPECT_EQ(tensor->requires_grad, !IsExact(dtype) && !IsFloat8(dtype) && dtype != DType::kC32);
    EXPECT_TRUE(tensor->contiguous);
    EXPECT_EQ(tensor->offset % 64, 0u);
    EXPECT_EQ(ReadAllText(*file, *tensor), data);
  }
}

TEST_F(FormatsTest, WrittenPtOfEveryRankAndOfNoElements) {
  const std::string path = dir_ + "/w.pt";
  for (const Shape& shape : {Shape{}, Shape{5}, Shape{0}, Shape{2, 0, 70000}, Shape{1, 2, 3},
                             Shape{1, 1, 1, 2, 300}, Shape{0, 3'000'000'000}}) {
    const auto n = static_cast<size_t>(*NumElements(shape));
    std::string data(n * 2, 'a');
    ASSERT_TRUE(WritePt(path, DType::kF16, shape, false, AsBytes(data)).ok());
    const auto file = TensorFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.error().ToString();
    EXPECT_EQ(SingleTensor(*file)->shape, shape);
    EXPECT_EQ(ReadAllText(*file, file->tensors()[0]), data);
  }
}

// tests/data/formats/written holds what WritePt wrote; tests/python/test_formats_torch.py shows
// that PyTorch reads every one of these files as it should. A change of the bytes needs both.
TEST_F(FormatsTest, WrittenPtIsTheFileThatTorchWasShownToRead) {
  const auto expect = [&](std::string_view name, DType dtype, const Shape& shape, bool grad) {
    std::string data(static_cast<size_t>(*NumElements(shape)) * ItemSize(dtype), '\0');
    for (size_t k = 0; k < data.size(); ++k)
      data[k] = static_cast<char>(dtype == DType::kBool ? k % 2 : 7 * k + 1);
    ASSERT_TRUE(WritePt(dir_ + "/w.pt", dtype, shape, grad, AsBytes(data)).ok());
    const std::string shown =
        Slurp(std::string(MSPROBE_TEST_DATA "/formats/written/").append(name).append(".pt"));
    EXPECT_TRUE(!shown.empty() && Slurp(dir_ + "/w.pt") == shown) << name;
  };
  for (int i = 0; i < kNumDTypes; ++i)
    expect(ShortName(static_cast<DType>(i)), static_cast<DType>(i), {2, 3}, true);
  expect("rank0", DType::kI16, {}, false);
  expect("rank1_empty", DType::kI16, {0}, false);
  expect("rank3", DType::kI16, {2, 1, 3}, false);
  expect("rank5", DType::kI16, {1, 2, 1, 2, 300}, false);
  expect("wide_empty", DType::kI16, {0, 3'000'000'000}, false);
}

TEST_F(FormatsTest, WritingTwiceGivesTheSameBytes) {
  const std::string data = RawOf<float>({1, 2});
  ASSERT_TRUE(WritePt(dir_ + "/a.pt", DType::kF32, Shape{2}, false, AsBytes(data)).ok());
  ASSERT_TRUE(WritePt(dir_ + "/b.pt", DType::kF32, Shape{2}, false, AsBytes(data)).ok());
  EXPECT_EQ(Slurp(dir_ + "/a.pt"), Slurp(dir_ + "/b.pt"));
}

// The pickle of torch.save (tests/data/formats/float32.pt, uint16.pt), byte for byte.
TEST_F(FormatsTest, WrittenPickleIsTorchs) {
  for (const auto& [name, dtype] :
       {std::pair("float32", DType::kF32), std::pair("uint16", DType::kU16)}) {
    const auto theirs = InputFile::Open(std::string(MSPROBE_TEST_DATA "/formats/") + name + ".pt");
    const auto their_zip = archive::ZipReader::Open(*theirs);
    ASSERT_TRUE(their_zip.ok());
    const auto their_pickle =
        their_zip->Read(*their_zip->Find(std::string(name) + "/data.pkl"), 10'000);
    ASSERT_TRUE(their_pickle.ok());
    const std::string data(6 * ItemSize(dtype), '\0');
    ASSERT_TRUE(WritePt(dir_ + "/w.pt", dtype, Shape{2, 3}, false, AsBytes(data)).ok());
    const auto ours = InputFile::Open(dir_ + "/w.pt");
    const auto our_zip = archive::ZipReader::Open(*ours);
    EXPECT_EQ(*our_zip->Read(*our_zip->Find("archive/data.pkl"), 10'000), *their_pickle);
  }
}

// np.save's bytes (tests/data/formats), byte for byte.
TEST_F(FormatsTest, WrittenNpyIsNumPys) {
  for (const auto& [name, dtype, shape] : {std::tuple("f4.npy", DType::kF32, Shape{2, 3}),
                                           std::tuple("bool.npy", DType::kBool, Shape{2, 3}),
                                           std::tuple("c16.npy", DType::kC128, Shape{2, 3}),
                                           std::tuple("u1.npy", DType::kU8, Shape{2, 3}),
                                           std::tuple("scalar.npy", DType::kI32, Shape{}),
                                           std::tuple("vector.npy", DType::kF64, Shape{3}),
                                           std::tuple("none.npy", DType::kF64, Shape{0, 2})}) {
    SCOPED_TRACE(name);
    const std::string theirs = Slurp(std::string(MSPROBE_TEST_DATA "/formats/") + name);
    ASSERT_FALSE(theirs.empty());
    const size_t bytes = static_cast<size_t>(*NumElements(shape)) * ItemSize(dtype);
    const std::string data = theirs.substr(theirs.size() - bytes);
    ASSERT_TRUE(WriteNpy(dir_ + "/w.npy", dtype, shape, AsBytes(data)).ok());
    EXPECT_EQ(Slurp(dir_ + "/w.npy"), theirs);
  }
}

TEST_F(FormatsTest, WriteNpyRefusesWhatNumPyLacks) {
  for (const DType dtype : {DType::kBF16, DType::kF8E4M3FN, DType::kF8E4M3FNUZ, DType::kF8E5M2,
                            DType::kF8E5M2FNUZ, DType::kF8E8M0FNU, DType::kC32}) {
    const std::string data(ItemSize(dtype), '\0');
    EXPECT_EQ(WriteNpy(dir_ + "/w.npy", dtype, Shape{1}, AsBytes(data)).error().code,
              ErrorCode::kUnsupported);
    EXPECT_FALSE(std::filesystem::exists(dir_ + "/w.npy"));
  }
}

TEST_F(FormatsTest, WritersRefuseDataOfAnotherSize) {
  EXPECT_EQ(WritePt(dir_ + "/w.pt", DType::kF32, Shape{2}, false, AsBytes("1234567")).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(WriteNpy(dir_ + "/w.npy", DType::kF32, Shape{-1}, AsBytes("")).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(WritePt(dir_ + "/none/w.pt", DType::kF32, Shape{0}, false, {}).error().code,
            ErrorCode::kNotFound);
}

}  // namespace
}  // namespace msprobe::formats
