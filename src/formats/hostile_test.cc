// Smallest inputs of every refusal: pickles, headers and sizes that lie.
#include <gmock/gmock.h>

#include "formats/test_support.h"

namespace msprobe::formats {
namespace {

using ::testing::HasSubstr;

#define EXPECT_REFUSED(path_expr, expected_code, text)                              \
  do {                                                                              \
    const auto refused_ = TensorFile::Open(path_expr);                              \
    ASSERT_FALSE(refused_.ok());                                                    \
    EXPECT_EQ(refused_.error().code, expected_code) << refused_.error().ToString(); \
    EXPECT_THAT(refused_.error().message, HasSubstr(text));                         \
  } while (false)

// ---- pickles
// ----------------------------------------------------------------------------------------------------------------

std::string Text(std::string_view s) {
  std::string out("X");
  out += Raw(static_cast<uint32_t>(s.size()));
  return out.append(s);
}
std::string Int(int64_t v) { return std::string("\x8a\x08", 2) + Raw(v); }

struct Lie {
  std::string_view module = "torch";
  std::string_view type = "FloatStorage";
  std::string_view location = "cpu";
  std::string key = "0";
  int64_t numel = 6;
  int64_t offset = 0;
  std::vector<int64_t> shape = {2, 3};
  std::vector<int64_t> strides = {3, 1};
  std::string_view function = "_rebuild_tensor_v2";
  std::string tail = {};  // further arguments
};

std::string Pickle(const Lie& lie) {
  std::string p("\x80\x02", 2);
  p += "ctorch._utils\n" + std::string(lie.function) + "\n((" + Text("storage") + "c" +
       std::string(lie.module) + "\n" + std::string(lie.type) + "\n" + Text(lie.key) +
       Text(lie.location) + Int(lie.numel) + "tQ" + Int(lie.offset) + "(";
  for (const int64_t v : lie.shape) p += Int(v);
  p += "t(";
  for (const int64_t v : lie.strides) p += Int(v);
  p += "t";
  if (lie.function != "_rebuild_tensor") p += "\x89}";
  p += lie.tail + "tR.";
  return p;
}

const std::string kSix = RawOf<float>({0, 1, 2, 3, 4, 5});

TEST_F(FormatsTest, PickleWithoutLiesReads) {
  for (const std::string_view location : {"cpu", "cuda:0", "npu:3", "meta?"}) {
    const auto file = TensorFile::Open(SavePt(Pickle({.location = location}), kSix));
    ASSERT_TRUE(file.ok()) << file.error().ToString();
    EXPECT_EQ(ReadAllText(*file, file->tensors()[0]), kSix);
  }
  const auto old = TensorFile::Open(SavePt(Pickle({.function = "_rebuild_tensor"}), kSix));
  ASSERT_TRUE(old.ok()) << old.error().ToString();
  const auto cuda = TensorFile::Open(SavePt(Pickle({.module = "torch.cuda"}), kSix));
  EXPECT_TRUE(cuda.ok());
}

TEST_F(FormatsTest, StorageSizesThatLie) {
  EXPECT_REFUSED(SavePt(Pickle({.numel = 7}), kSix), ErrorCode::kMalformed,
                 "has 24 bytes, its record says 28");
  EXPECT_REFUSED(SavePt(Pickle({}), kSix + "x"), ErrorCode::kMalformed, "has 25 bytes");
  EXPECT_REFUSED(SavePt(Pickle({.numel = -1}), kSix), ErrorCode::kMalformed, "negative size");
  EXPECT_REFUSED(SavePt(Pickle({.numel = INT64_MAX}), kSix), ErrorCode::kMalformed,
                 "larger than any memory");
  EXPECT_REFUSED(SavePt(Pickle({.key = "1"}), kSix), ErrorCode::kMalformed,
                 "archive/data/1 is missing");
  EXPECT_REFUSED(SavePt(Pickle({.key = "../data/0"}), kSix), ErrorCode::kMalformed, "is missing");
}

TEST_F(FormatsTest, ShapesThatReachBeyondTheStorage) {
  EXPECT_REFUSED(SavePt(Pickle({.offset = 1}), kSix), ErrorCode::kMalformed,
                 "reach beyond the 24 bytes");
  EXPECT_REFUSED(SavePt(Pickle({.shape = {2, 4}}), kSix), ErrorCode::kMalformed, "reach beyond");
  EXPECT_REFUSED(SavePt(Pickle({.strides = {4, 1}}), kSix), ErrorCode::kMalformed, "reach beyond");
  EXPECT_REFUSED(SavePt(Pickle({.strides = {INT64_MAX, 1}}), kSix), ErrorCode::kMalformed,
                 "reach beyond");
  EXPECT_REFUSED(SavePt(Pickle({.offset = INT64_MAX}), kSix), ErrorCode::kMalformed,
                 "reach beyond");
  EXPECT_REFUSED(SavePt(Pickle({.offset = -1}), kSix), ErrorCode::kMalformed,
                 "offset, size or stride");
  EXPECT_REFUSED(SavePt(Pickle({.shape = {-2, 3}}), kSix), ErrorCode::kMalformed,
                 "offset, size or stride");
  EXPECT_REFUSED(SavePt(Pickle({.strides = {-3, 1}}), kSix), ErrorCode::kMalformed,
                 "offset, size or stride");
  EXPECT_REFUSED(SavePt(Pickle({.strides = {1}}), kSix), ErrorCode::kMalformed,
                 "more sizes than strides");
}

TEST_F(FormatsTest, ShapesTooLargeForAnyMemory) {
  EXPECT_REFUSED(SavePt(Pickle({.shape = {INT64_MAX, 3}, .strides = {0, 0}}), kSix),
                 ErrorCode::kMalformed, "impossible");
  EXPECT_REFUSED(SavePt(Pickle({.shape = {0, INT64_MAX, INT64_MAX}, .strides = {0, 0, 0}}), kSix),
                 ErrorCode::kMalformed, "impossible");
  EXPECT_REFUSED(SavePt(Pickle({.shape = {int64_t{1} << 40}, .strides = {0}}), kSix),
                 ErrorCode::kTooLarge, "the limit is");
  const std::vector<int64_t> ones(65, 1);
  EXPECT_REFUSED(SavePt(Pickle({.shape = ones, .strides = ones}), kSix), ErrorCode::kTooLarge,
                 "65 dimensions");
  Limits limits;
  limits.max_rank = 1;
  EXPECT_EQ(TensorFile::Open(SavePt(Pickle({}), kSix), limits).error().code, ErrorCode::kTooLarge);
}

TEST_F(FormatsTest, ExpandedTensorsOfLargeShapesReadFromTheirStorage) {
  const auto file = TensorFile::Open(SavePt(Pickle({.shape = {1000, 3}, .strides = {0, 2}}), kSix));
  ASSERT_TRUE(file.ok()) << file.error().ToString();
  EXPECT_EQ(file->tensors()[0].span_bytes, 20u);
  const std::string all = ReadAllText(*file, file->tensors()[0]);
  for (size_t i = 0; i < 1000; ++i) ASSERT_EQ(all.substr(12 * i, 12), RawOf<float>({0, 2, 4}));
}

TEST_F(FormatsTest, ElementTypesThatAreNotKnown) {
  EXPECT_REFUSED(SavePt(Pickle({.type = "QInt8Storage"}), kSix), ErrorCode::kUnsupported,
                 "torch.QInt8Storage");
  EXPECT_REFUSED(SavePt(Pickle({.module = "os"}), kSix), ErrorCode::kUnsupported,
                 "os.FloatStorage");
  EXPECT_REFUSED(SavePt(Pickle({.type = "UntypedStorage", .numel = 24}), kSix),
                 ErrorCode::kMalformed, "without an element type");
  EXPECT_REFUSED(SavePt(Pickle({.type = "UntypedStorage",
                                .numel = 24,
                                .function = "_rebuild_tensor_v3",
                                .tail = "ctorch\nfloat128\n"}),
                        kSix),
                 ErrorCode::kUnsupported, "torch.float128");
  EXPECT_REFUSED(SavePt(Pickle({.function = "_rebuild_tensor_v3"}), kSix), ErrorCode::kMalformed,
                 "wrong arguments");
  const auto file = TensorFile::Open(SavePt(Pickle({.type = "UntypedStorage",
                                                    .numel = 24,
                                                    .function = "_rebuild_tensor_v3",
                                                    .tail = "ctorch\nuint32\n"}),
                                            kSix));
  ASSERT_TRUE(file.ok()) << file.error().ToString();
  EXPECT_EQ(file->tensors()[0].dtype, DType::kU32);
}

TEST_F(FormatsTest, CallsOfAnythingElseAreRefusedByName) {
  const std::string p("\x80\x02", 2);
  EXPECT_REFUSED(SavePt(p + "cos\nsystem\n" + Text("true") + "\x85R.", ""), ErrorCode::kUnsupported,
                 "the call of os.system is refused");
  EXPECT_REFUSED(SavePt(p + "cbuiltins\neval\n" + Text("1") + "\x85R.", ""),
                 ErrorCode::kUnsupported, "builtins.eval");
  EXPECT_REFUSED(SavePt(std::string("\x80\x04", 2) + Text("os") + Text("system") + "\x93)R.", ""),
                 ErrorCode::kUnsupported, "os.system");
  EXPECT_REFUSED(SavePt(p + "cmine\nThing\n)\x81.", ""), ErrorCode::kUnsupported, "mine.Thing");
  EXPECT_REFUSED(SavePt(p + "ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_"
                            "tensor_v2\ncmine\nSub\n)}tR.",
                        ""),
                 ErrorCode::kUnsupported, "mine.Sub");
  EXPECT_REFUSED(
      SavePt(p + "ctorch._tensor\n_rebuild_from_type_v2\n(cos\nsystem\nctorch\nTensor\n)}tR.", ""),
      ErrorCode::kUnsupported, "os.system");
  EXPECT_REFUSED(SavePt(p + "cmine\nThing\n}b.", ""), ErrorCode::kUnsupported,
                 "sets the state of mine.Thing");
}

TEST_F(FormatsTest, OpcodesThatAreNotKnown) {
  const std::string p("\x80\x02", 2);
  EXPECT_REFUSED(SavePt(p + "I1\n.", ""), ErrorCode::kUnsupported, "opcode 0x49 is refused");
  EXPECT_REFUSED(SavePt(p + "\x82\x01.", ""), ErrorCode::kUnsupported,
                 "opcode 0x82 is refused");                                       // EXT1
  EXPECT_REFUSED(SavePt("(lp0\n.", ""), ErrorCode::kUnsupported, "opcode 0x70");  // protocol 0
  EXPECT_REFUSED(SavePt(std::string("\x80\x06N.", 4), ""), ErrorCode::kUnsupported, "protocol 6");
}

TEST_F(FormatsTest, StackAndMemoThatDoNotAddUp) {
  const auto p = [](std::string_view rest) {
    return std::string("\x80\x02", 2) + std::string(rest);
  };
  EXPECT_REFUSED(SavePt(p("."), ""), ErrorCode::kMalformed, "does not end with one value");
  EXPECT_REFUSED(SavePt(p("NN."), ""), ErrorCode::kMalformed, "does not end with one value");
  EXPECT_REFUSED(SavePt(p("(N."), ""), ErrorCode::kMalformed, "does not end with one value");
  EXPECT_REFUSED(SavePt(p("N"), ""), ErrorCode::kTruncated, "before its STOP");
  EXPECT_REFUSED(SavePt(p("N.N"), ""), ErrorCode::kMalformed, "goes on after its STOP");
  EXPECT_REFUSED(SavePt(p("t."), ""), ErrorCode::kMalformed, "a mark is missing");
  EXPECT_REFUSED(SavePt(p("(0."), ""), ErrorCode::kMalformed, "does not end");
  EXPECT_REFUSED(SavePt(p("0."), ""), ErrorCode::kMalformed, "takes a value");
  EXPECT_REFUSED(SavePt(p("N(R."), ""), ErrorCode::kMalformed, "takes a value");
  EXPECT_REFUSED(SavePt(p("2."), ""), ErrorCode::kMalformed, "DUP");
  EXPECT_REFUSED(SavePt(p("q\x01."), ""), ErrorCode::kMalformed, "remembers");
  EXPECT_REFUSED(SavePt(p("h\x01."), ""), ErrorCode::kMalformed, "recalls value 1");
  EXPECT_REFUSED(SavePt(p("Nr\xFF\xFF\xFF\xFF."), ""), ErrorCode::kTooLarge, "memo index");
  EXPECT_REFUSED(SavePt(p("NNa."), ""), ErrorCode::kMalformed, "no container");
  EXPECT_REFUSED(SavePt(p("}(Nu."), ""), ErrorCode::kMalformed, "without a value");
  EXPECT_REFUSED(SavePt(p("NNR."), ""), ErrorCode::kMalformed, "calls None");
  EXPECT_REFUSED(SavePt(p("cos\nsystem\nNR."), ""), ErrorCode::kMalformed, "no tuple");
  EXPECT_REFUSED(SavePt(p("NQ."), ""), ErrorCode::kMalformed, "persistent id");
  EXPECT_REFUSED(SavePt(p("X\xFF\xFF\xFF\xFFz."), ""), ErrorCode::kTruncated, "inside a string");
  EXPECT_REFUSED(SavePt(p("cos\nsystem"), ""), ErrorCode::kTruncated, "inside a name");
  EXPECT_REFUSED(SavePt(p("J\x01"), ""), ErrorCode::kTruncated, "inside an instruction");
  EXPECT_REFUSED(SavePt(p("NN\x93."), ""), ErrorCode::kMalformed, "no string");
}

TEST_F(FormatsTest, ListsThatHoldThemselvesEnd) {
  EXPECT_REFUSED(SavePt(std::string("\x80\x02]q\x00h\x00"
                                    "a.",
                                    9),
                        ""),
                 ErrorCode::kTooLarge, "nested too deeply");
}

// Each level holds the one below twice: 2^60 leaves in 300 bytes.
TEST_F(FormatsTest, DoublingStructuresEnd) {
  std::string p("\x80\x02N\x85", 4);
  for (int i = 0; i < 60; ++i) p += "2\x86";
  EXPECT_REFUSED(SavePt(p + ".", ""), ErrorCode::kTooLarge, "too large to list");
}

TEST_F(FormatsTest, DeepPicklesNeedNoStack) {
  std::string p("\x80\x02N", 3);
  p.append(3'000'000, '\x85');
  EXPECT_REFUSED(SavePt(p + ".", ""), ErrorCode::kTooLarge, "nested too deeply");
  EXPECT_REFUSED(SavePt(std::string("\x80\x02", 2) + std::string(5'000'000, 'N') + ".", ""),
                 ErrorCode::kTooLarge, "more than 4000000 values");
}

TEST_F(FormatsTest, RepeatedCopiesOfShapesAreBounded) {
  const std::string sixty_four(64, 'K');
  std::string shape = "(";
  for (int i = 0; i < 64; ++i) shape += std::string("K\x01", 2);
  shape += "t";
  std::string p("\x80\x02", 2);
  // memo 0: the function, memo 1: its arguments
  p += "ctorch._utils\n_rebuild_tensor\nq";
  p += '\0';
  p += "((" + Text("storage") + "ctorch\nFloatStorage\n" + Text("0") + Text("cpu") + Int(6) + "tQK";
  p += '\0';
  p += shape + shape + "tq\x01R";
  for (int i = 0; i < 300'000; ++i) p += std::string("0h\0h\1R", 6);
  EXPECT_REFUSED(SavePt(p + ".", kSix), ErrorCode::kTooLarge, "without measure");
}

// ---- the legacy stream
// ------------------------------------------------------------------------------------------------------

std::string LegacyStream(std::string_view key, int64_t numel, bool little = true,
                         int protocol = 1001) {
  std::string out("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15);
  out += std::string("\x80\x02M", 3) + Raw(static_cast<uint16_t>(protocol)) + ".";
  out += std::string("\x80\x02}(", 4) + Text("little_endian") + (little ? "\x88" : "\x89") + "u.";
  out += Pickle({});
  out += std::string("\x80\x02]", 3) + Text(key) + "a.";
  return out + Raw(numel) + kSix;
}

TEST_F(FormatsTest, LegacyStreamReadsAndRefusesLies) {
  const auto file = TensorFile::Open(Save(LegacyStream("0", 6)));
  ASSERT_TRUE(file.ok()) << file.error().ToString();
  EXPECT_EQ(ReadAllText(*file, file->tensors()[0]), kSix);
  EXPECT_REFUSED(Save(LegacyStream("0", 7)), ErrorCode::kMalformed,
                 "has 7 elements, its record says 6");
  EXPECT_REFUSED(Save(LegacyStream("1", 6)), ErrorCode::kMalformed, "belongs to nothing");
  EXPECT_REFUSED(Save(LegacyStream("0", 6) + "x"), ErrorCode::kMalformed, "1 bytes too many");
  EXPECT_REFUSED(Save(LegacyStream("0", 6, false)), ErrorCode::kUnsupported, "big-endian");
  EXPECT_REFUSED(Save(LegacyStream("0", 6, true, 1000)), ErrorCode::kUnsupported, "protocol");
  const std::string whole = LegacyStream("0", 6);
  EXPECT_REFUSED(Save(whole.substr(0, whole.size() - 1)), ErrorCode::kTruncated, "cut off");
}

// ---- .npy
// -------------------------------------------------------------------------------------------------------------------

std::string Npy(std::string_view header, std::string_view data, char major = 1) {
  std::string out("\x93NUMPY", 6);
  out += major;
  out += '\0';
  out += major == 1 ? Raw(static_cast<uint16_t>(header.size()))
                    : Raw(static_cast<uint32_t>(header.size()));
  return out + std::string(header) + std::string(data);
}

TEST_F(FormatsTest, NpyHeadersThatLieOrAreNone) {
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  EXPECT_TRUE(TensorFile::Open(Save(Npy(good, kSix))).ok());
  EXPECT_TRUE(TensorFile::Open(
                  Save(Npy(R"({"shape": (2L,3L), "fortran_order": False, "descr": "f4"})", kSix)))
                  .ok());
  EXPECT_REFUSED(Save(Npy(good, kSix.substr(1))), ErrorCode::kTruncated,
                 "23 bytes of elements, 24 expected");
  EXPECT_REFUSED(Save(Npy(good, kSix + "x")), ErrorCode::kMalformed, "1 bytes after the elements");
  EXPECT_REFUSED(Save(Npy(good, kSix, 4)), ErrorCode::kUnsupported, "version 4.0");
  EXPECT_REFUSED(Save(Npy(good + "x", kSix)), ErrorCode::kMalformed, "text after the dict");
  for (const std::string_view bad :
       {"", "{", "{}", "[]", "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'descr': '<f4'}", "{'descr': '<f4', 'fortran_order': 0, 'shape': (6,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (6)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 6}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-6,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), 'x': 1}",
        "{'descr': '<f4' 'fortran_order': False, 'shape': (6,)}",
        "{'descr': 4, 'fortran_order': False, 'shape': (6,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, __import__('os').getpid())}"})
    EXPECT_REFUSED(Save(Npy(bad, kSix)), ErrorCode::kMalformed, "npy header");
  const auto shaped = [](std::string_view shape) {
    return Npy("{'descr': '<f4', 'fortran_order': False, 'shape': " + std::string(shape) + "}",
               kSix);
  };
  EXPECT_REFUSED(Save(shaped("(9223372036854775807, 2)")), ErrorCode::kMalformed, "impossible");
  EXPECT_REFUSED(Save(shaped("(0, 9223372036854775807, 9223372036854775807)")),
                 ErrorCode::kMalformed, "impossible");
  EXPECT_REFUSED(Save(shaped("(1000000000000,)")), ErrorCode::kTooLarge, "the limit is");
  EXPECT_REFUSED(Save(Npy(std::string(70'000, ' '), "", 2)), ErrorCode::kTooLarge, "70000 bytes");
}

// ---- safetensors
// ------------------------------------------------------------------------------------------------------------

std::string Safe(std::string_view header, std::string_view data) {
  return Raw(static_cast<uint64_t>(header.size())) + std::string(header) + std::string(data);
}

TEST_F(FormatsTest, SafetensorsHeadersThatLie) {
  const auto one = [](std::string_view rest) {
    return Safe("{\"x\": {" + std::string(rest) + "}}", kSix);
  };
  EXPECT_TRUE(
      TensorFile::Open(Save(one(R"("dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24])")))
          .ok());
  const auto expect = [&](std::string_view rest, ErrorCode code, std::string_view text) {
    EXPECT_REFUSED(Save(one(rest)), code, std::string(text));
  };
  expect(R"("dtype": "F4", "shape": [6], "data_offsets": [0, 24])", ErrorCode::kUnsupported,
         "element type F4");
  expect(R"("dtype": "F32", "shape": [6])", ErrorCode::kMalformed, "data_offsets is missing");
  expect(R"("dtype": "F32", "shape": [-6], "data_offsets": [0, 24])", ErrorCode::kMalformed,
         "natural number");
  expect(R"("dtype": "F32", "shape": [6.0], "data_offsets": [0, 24])", ErrorCode::kMalformed,
         "natural number");
  expect(R"("dtype": "F32", "shape": [6], "data_offsets": [24, 0])", ErrorCode::kMalformed,
         "backwards");
  expect(R"("dtype": "F32", "shape": [5], "data_offsets": [0, 24])", ErrorCode::kMalformed,
         "do not agree");
  expect(R"("dtype": "F32", "shape": [7], "data_offsets": [0, 24])", ErrorCode::kMalformed,
         "reach beyond");
  expect(R"("dtype": "F32", "shape": [7], "data_offsets": [0, 28])", ErrorCode::kTruncated,
         "4 bytes beyond the file");
  expect(R"("dtype": "F32", "shape": [5], "data_offsets": [0, 20])", ErrorCode::kMalformed,
         "belong to no tensor");
  expect(R"("dtype": "F32", "shape": [5], "data_offsets": [4, 24])", ErrorCode::kMalformed, "gap");
  expect(R"("dtype": "F32", "shape": [4611686018427387904], "data_offsets": [0, 24])",
         ErrorCode::kMalformed, "impossible");
  const std::string a = R"("a": {"dtype": "F32", "shape": [6], "data_offsets": [0, 24]})";
  const std::string b = R"("b": {"dtype": "F32", "shape": [1], "data_offsets": [20, 24]})";
  EXPECT_REFUSED(Save(Safe("{" + a + ", " + b + "}", kSix)), ErrorCode::kMalformed, "overlaps");
  EXPECT_REFUSED(Save(Safe("{" + a + ", " + a + "}", kSix)), ErrorCode::kMalformed, "there twice");
  EXPECT_REFUSED(Save(Safe("{" + a, kSix)), ErrorCode::kMalformed, "safetensors header");
  EXPECT_REFUSED(Save(Raw(uint64_t{200'000'000}) + "{}"), ErrorCode::kTooLarge, "200000000 bytes");
  EXPECT_REFUSED(Save(Raw(uint64_t{100}) + "{}"), ErrorCode::kTruncated, "100 bytes, 2 are there");
  EXPECT_TRUE(TensorFile::Open(Save(Safe(R"({"__metadata__": {"k": "v"}})", ""))).ok());
}

}  // namespace
}  // namespace msprobe::formats
