// Single pairs of tensors: the table of compare.md 25.4 (figures of numpy in the work type), files
// that cannot be compared, and pairs large enough to be cut into pieces.
#include <bit>
#include <cmath>

#include "compare/test_dump.h"

namespace msprobe::compare {
namespace {

constexpr double kNone = -12345;  // a cell that holds no number

struct PairCase {
  const char* name;
  DType dtype;
  const char* torch;
  Shape shape;
  std::vector<double> target, golden;
  std::array<double, 6>
      figures;  // cosine, euclidean, max abs, max rel, shares below 1/1000 and 5/1000
};

template <class T>
std::vector<T> As(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

class SinglePair : public DumpTest, public testing::WithParamInterface<PairCase> {
 protected:
  void WriteValues(const std::string& side, const PairCase& c, const std::vector<double>& v) {
    switch (c.dtype) {
      case DType::kF16: {
        // Exact small numbers and 60000: bits by hand.
        const auto bits = [](double x) -> uint16_t {
          const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
          x = std::abs(x);
          const uint16_t magnitude = x == 0       ? 0
                                     : x == 1     ? 0x3C00
                                     : x == 2     ? 0x4000
                                     : x == 60000 ? 0x7B53
                                                  : 0xFFFF;
          return static_cast<uint16_t>(sign | magnitude);
        };
        std::vector<uint16_t> out;
        for (const double x : v) out.push_back(bits(x));
        return WriteTensor(side, c.name, c.dtype, c.shape, out);
      }
      case DType::kBool:
      case DType::kU8:
        return WriteTensor(side, c.name, c.dtype, c.shape, As<uint8_t>(v));
      case DType::kI64:
        return WriteTensor(side, c.name, c.dtype, c.shape, As<int64_t>(v));
      case DType::kF64:
        return WriteTensor(side, c.name, c.dtype, c.shape, v);
      default:
        return WriteTensor(side, c.name, c.dtype, c.shape, As<float>(v));
    }
  }
};

TEST_P(SinglePair, GivesTheFiguresOfTheSpecification) {
  const PairCase& c = GetParam();
  WriteValues("target", c, c.target);
  WriteValues("golden", c, c.golden);
  const std::string leaf = LeafJson(c.torch, ShapeText(c.shape), std::string(c.name) + ".pt");
  WriteBoth("tensor", Call("Torch.a.0.forward", "", leaf), Call("Torch.a.0.forward", "", leaf));
  const auto result = Compare(input());
  ASSERT_TRUE(result.ok()) << result.error().ToString();
  const Row& row = result->rows.at(0);
  const bool one = c.figures[0] == kNone && c.figures[1] == kNone;
  ASSERT_EQ(row.gate, one ? Gate::kZeroDim : Gate::kCompared) << *row.unreadable;
  const metrics::PairMetrics& m = *row.metrics;
  if (c.figures[0] != kNone) {
    const bool zeros = m.cosine_case == metrics::CosineCase::kBothZero;
    EXPECT_NEAR(zeros ? 1 : m.cosine, c.figures[0], 1e-9);
  } else if (!one) {
    EXPECT_NE(m.cosine_case, metrics::CosineCase::kValue);
  }
  const std::array<double, 6> got = {0,         m.euclidean,        m.max_abs,
                                     m.max_rel, m.below_thousandth, m.below_five_thousandths};
  for (size_t i = 1; i < 6; ++i) {
    if (c.figures[i] == kNone) continue;
    EXPECT_NEAR(got[i], c.figures[i], 1e-9 * std::abs(c.figures[i]) + 1e-12) << i;
  }
}

const PairCase kPairs[] = {
    {"half_zero", DType::kF16, "torch.float16", {3}, {0, 1, 2}, {0, 1, 2}, {1, 0, 0, 0, 1, 1}},
    {"half_golden_zero",
     DType::kF16,
     "torch.float16",
     {3},
     {1, 1, 2},
     {0, 1, 2},
     {0.912870929175, 1, 1, 8388608.0, 0.666666666667, 0.666666666667}},
    {"unsigned",
     DType::kU8,
     "torch.uint8",
     {2},
     {3, 250},
     {4, 3},
     {0.60955611354, 247.00202428320299, 247, 82.333333333333, 0, 0}},
    {"unsigned_zero_dim",
     DType::kU8,
     "torch.uint8",
     {},
     {3},
     {4},
     {kNone, kNone, 1.0, 0.25, kNone, kNone}},
    {"below_cell_digits",
     DType::kF64,
     "torch.float64",
     {2},
     {1e-13, 2e-13},
     {1e-13, 3e-13},
     {0.989949493661, 9.999999999999998e-14, 1e-13, 0.333333333333, 0.5, 0.5}},
    // Upstream calls both vectors zero and the cosine 1; (1 * 5 - 2 * 3) / (sqrt 5 * sqrt 34) is
    // the true one (D8).
    {"tiny",
     DType::kF64,
     "torch.float64",
     {2},
     {1e-17, 2e-17},
     {5e-17, -3e-17},
     {-0.076696498885, 6.403124237432849e-17, 5e-17, 1.666666666667, 0, 0}},
    {"target_zero",
     DType::kF32,
     "torch.float32",
     {4},
     {0, 0, 0, 0},
     {.5, .5, .5, .5},
     {kNone, 1.0, 0.5, 1.0, 0, 0}},
    {"some_golden_zero",
     DType::kF32,
     "torch.float32",
     {2},
     {1, 0.01},
     {1, 0},
     {0.99995000375, 0.009999999776482582, 0.009999999776, 83886.078125, 0.5, 0.5}},
    {"half_opposite",
     DType::kF16,
     "torch.float16",
     {2},
     {60000, 1},
     {-60000, 1},
     {-0.999999999444, 120000, 120000, 2.0, 0.5, 0.5}},
    {"bools",
     DType::kBool,
     "torch.bool",
     {3},
     {1, 0, 1},
     {1, 1, 1},
     {0.816496580928, 1, 1, 1, 0.666666666667, 0.666666666667}},
    {"integers",
     DType::kI64,
     "torch.int64",
     {3},
     {0, 2, 3},
     {0, 0, 3},
     {0.832050294338, 2, 2, 9007199254740991.0, 0.666666666667, 0.666666666667}},
    {"one_element",
     DType::kF32,
     "torch.float32",
     {1},
     {2.0},
     {2.5},
     {kNone, kNone, 0.5, 0.20000000298, kNone, kNone}},
};
INSTANTIATE_TEST_SUITE_P(Spec, SinglePair, testing::ValuesIn(kPairs),
                         [](const auto& param) { return param.param.name; });

class PairFiles : public DumpTest {
 protected:
  // One output per side, float32 unless said otherwise.
  const Row& CompareOne(const std::string& target_leaf, const std::string& golden_leaf,
                        Options options = {}) {
    WriteBoth("tensor", Call("Torch.a.0.forward", "", target_leaf),
              Call("Torch.a.0.forward", "", golden_leaf));
    auto result = Compare(input(), options);
    EXPECT_TRUE(result.ok());
    comparison_ = std::move(result).value();
    return comparison_.rows.at(0);
  }
  Comparison comparison_;
};

TEST_F(PairFiles, OppositeInfinitiesAreAnInfiniteErrorAndAnError) {
  WriteTensor<float>("target", "a", DType::kF32, {2}, {HUGE_VALF, 1});
  WriteTensor<float>("golden", "a", DType::kF32, {2}, {-HUGE_VALF, 1});
  const std::string leaf = LeafJson("torch.float32", "[2]", "a.pt");
  const Row& row = CompareOne(leaf, leaf);
  EXPECT_EQ(row.gate, Gate::kCompared);
  EXPECT_EQ(row.metrics->max_abs, HUGE_VAL);
  EXPECT_EQ(row.metrics->cosine, 1.0);
  EXPECT_EQ(row.metrics->below_thousandth, 1.0);
  EXPECT_TRUE(row.rules == std::initializer_list{Rule::kClass});
  EXPECT_EQ(row.verdict, Verdict::kError);
}

TEST_F(PairFiles, NonFiniteAtOtherPlacesIsAnErrorWithoutFigures) {
  const float nan = std::bit_cast<float>(0x7FC00000u);
  WriteTensor<float>("target", "a", DType::kF32, {3}, {nan, 1, 2});
  WriteTensor<float>("golden", "a", DType::kF32, {3}, {1, nan, 2});
  const std::string leaf = LeafJson("torch.float32", "[3]", "a.pt");
  const Row& row = CompareOne(leaf, leaf);
  EXPECT_EQ(row.gate, Gate::kNonFinitePositions);
  EXPECT_EQ(row.verdict, Verdict::kError);
  EXPECT_EQ(row.accuracy, OldAccuracy::kNo);
}

TEST_F(PairFiles, ComplexPartsBothCount) {
  // |[0, 2i]| = 2; real parts alone would be equal.
  WriteTensor<float>("target", "a", DType::kC64, {2}, {1, 2, 3, 1});
  WriteTensor<float>("golden", "a", DType::kC64, {2}, {1, 2, 3, -1});
  const std::string leaf = LeafJson("torch.complex64", "[2]", "a.pt");
  const Row& row = CompareOne(leaf, leaf);
  EXPECT_NEAR(row.metrics->cosine, 13.0 / 15.0, 1e-12);
  EXPECT_NEAR(row.metrics->euclidean, 2, 1e-12);
  EXPECT_NEAR(row.metrics->max_rel, 2 / std::sqrt(10.0), 1e-7);
}

TEST_F(PairFiles, RealAgainstComplexIsNotComparable) {
  WriteTensor<float>("target", "a", DType::kC64, {1}, {1, 0});
  WriteTensor<float>("golden", "a", DType::kF32, {1}, {1});
  Options options;
  options.data_mapping = config::NameMap{};  // no type filter (5.5)
  const Row& row = CompareOne(LeafJson("torch.complex64", "[1]", "a.pt"),
                              LeafJson("torch.float32", "[1]", "a.pt"), options);
  EXPECT_EQ(row.gate, Gate::kNotFloat);
  EXPECT_NE(row.verdict, Verdict::kPass);
}

TEST_F(PairFiles, FileThatContradictsItsRecordIsUnreadable) {
  WriteTensor<float>("target", "a", DType::kF32, {2}, {1, 2});
  WriteTensor<float>("golden", "a", DType::kF32, {2}, {1, 2});
  const Row& dtype = CompareOne(LeafJson("torch.float16", "[2]", "a.pt"),
                                LeafJson("torch.float16", "[2]", "a.pt"));
  EXPECT_EQ(dtype.gate, Gate::kUnreadable);
  EXPECT_NE(
      dtype.unreadable->find("a.pt: the file holds torch.float32, the record says torch.float16"),
      std::string::npos);
  EXPECT_EQ(dtype.verdict, Verdict::kUnmatched);
  const Row& shape = CompareOne(LeafJson("torch.float32", "[3]", "a.pt"),
                                LeafJson("torch.float32", "[3]", "a.pt"));
  EXPECT_EQ(shape.gate, Gate::kUnreadable);
  EXPECT_NE(shape.unreadable->find("the record says [3]"), std::string::npos);
}

TEST_F(PairFiles, NamesThatLeaveTheDumpFolderAreNotRead) {
  WriteTensor<float>("target", "a", DType::kF32, {1}, {1});
  std::filesystem::copy_file(root_ + "target/dump_tensor_data/a.pt", root_ + "target/outside.pt");
  const std::string leaf = LeafJson("torch.float32", "[1]", "../outside.pt");
  const Row& row = CompareOne(leaf, leaf);
  EXPECT_EQ(row.gate, Gate::kUnreadable);
  EXPECT_EQ(row.verdict, Verdict::kUnmatched);
  EXPECT_NE(row.unreadable->find("../outside.pt"), std::string::npos);
}

TEST_F(PairFiles, MissingFileConcernsItsRowOnly) {
  for (const char* side : {"target", "golden"})
    WriteTensor<float>(side, "b", DType::kF32, {2}, {1, 2});
  const std::string outputs =
      LeafJson("torch.float32", "[2]", "a.pt") + "," + LeafJson("torch.float32", "[2]", "b.pt");
  CompareOne(outputs, outputs);
  EXPECT_EQ(FindRow(comparison_, "a")->gate, Gate::kUnreadable);
  EXPECT_EQ(FindRow(comparison_, "b")->verdict, Verdict::kPass);
  EXPECT_EQ(comparison_.counts.unmatched, 1u);
  EXPECT_EQ(comparison_.counts.pass, 1u);
}

TEST_F(PairFiles, LargePairsAreCutWithoutATrace) {
  // 4,194,304 elements are one piece: 10 million make three. Two elements differ, one in the first
  // piece and one in the last.
  const size_t n = 10'000'000;
  std::vector<float> values(n, 1.0f);
  WriteTensor("golden", "a", DType::kF32, {static_cast<int64_t>(n)}, values);
  values[3] = 4;
  values[n - 1] = 5;
  WriteTensor("target", "a", DType::kF32, {static_cast<int64_t>(n)}, values);
  const std::string leaf = LeafJson("torch.float32", "[10000000]", "a.pt");
  for (const unsigned workers : {1u, 4u}) {
    Options options;
    options.workers = workers;
    const Row& row = CompareOne(leaf, leaf, options);
    ASSERT_EQ(row.gate, Gate::kCompared) << *row.unreadable;
    EXPECT_NEAR(row.metrics->euclidean, 5, 1e-12);  // sqrt(9 + 16)
    EXPECT_EQ(row.metrics->max_abs, 4);
    EXPECT_EQ(row.metrics->below_thousandth, 1 - 2.0 / static_cast<double>(n));
    // N.B = n + 3 + 4, |N|^2 = n - 2 + 16 + 25.
    const double d = static_cast<double>(n);
    EXPECT_NEAR(row.metrics->cosine, (d + 7) / std::sqrt((d + 39) * d), 1e-14);
    EXPECT_NEAR(row.relative_l2, 5 / std::sqrt(d), 1e-12);
  }
}

TEST_F(PairFiles, LayoutsThatMustBeReadWholeObeyTheMemoryLimit) {
  // A transposed [2, 3] of torch.save, from the test data of formats.
  const std::string file = std::string(MSPROBE_TEST_DATA) + "/formats/transposed.pt";
  const auto open = formats::TensorFile::Open(file);
  ASSERT_TRUE(open.ok());
  const formats::StoredTensor tensor = formats::SingleTensor(*open).value();
  ASSERT_FALSE(tensor.contiguous);
  for (const char* side : {"target", "golden"}) {
    std::filesystem::copy_file(file, root_ + side + "/dump_tensor_data/a.pt");
  }
  const std::string leaf =
      LeafJson(std::string(TorchName(tensor.dtype)), ShapeText(tensor.shape), "a.pt");
  EXPECT_EQ(CompareOne(leaf, leaf).metrics->max_abs, 0);
  EXPECT_EQ(comparison_.rows[0].verdict, Verdict::kPass);
  Options tight;
  tight.memory_limit = 1;
  EXPECT_EQ(CompareOne(leaf, leaf, tight).gate, Gate::kUnreadable);
}

TEST_F(PairFiles, TransposedLayoutIsComparedByPosition) {
  const std::string file = std::string(MSPROBE_TEST_DATA) + "/formats/transposed.pt";
  const auto open = formats::TensorFile::Open(file);
  ASSERT_TRUE(open.ok());
  const formats::StoredTensor tensor = formats::SingleTensor(*open).value();
  std::filesystem::copy_file(file, root_ + "target/dump_tensor_data/a.pt");
  std::vector<std::byte> rows(static_cast<size_t>(tensor.num_elements) * ItemSize(tensor.dtype));
  ASSERT_TRUE(open->ReadAll(tensor, rows.data()).ok());
  WriteTensor("golden", "a", tensor.dtype, tensor.shape, rows);
  const std::string leaf =
      LeafJson(std::string(TorchName(tensor.dtype)), ShapeText(tensor.shape), "a.pt");
  const Row& row = CompareOne(leaf, leaf);
  ASSERT_EQ(row.gate, Gate::kCompared) << *row.unreadable;
  EXPECT_EQ(row.metrics->euclidean, 0);
}

TEST_F(PairFiles, CancelledRunsSaySo) {
  for (const char* side : {"target", "golden"})
    WriteTensor<float>(side, "a", DType::kF32, {1}, {1});
  const std::string leaf = LeafJson("torch.float32", "[1]", "a.pt");
  WriteBoth("tensor", Call("Torch.a.0.forward", "", leaf), Call("Torch.a.0.forward", "", leaf));
  CancelToken cancel;
  cancel.Cancel();
  const auto result = CompareRank(input(), {}, NullLog(), NullProgress(), &cancel);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kCancelled);
}

}  // namespace
}  // namespace msprobe::compare
