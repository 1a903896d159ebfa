// Which entries differ (compare.md 19.1, D12), and products of tensors before the comparison
// (17.2).
#include "compare/first_difference.h"
#include "compare/postprocess.h"
#include "compare/test_dump.h"

namespace msprobe::compare {
namespace {

class FirstDifference : public DumpTest {
 protected:
  static std::string Leaf(const std::string& max) {
    return R"({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": )" + max +
           R"(, "Min": 1.0, "Mean": 1.0, "Norm": 1.0, "requires_grad": false})";
  }
  static std::string Entry(const std::string& input, const std::string& output) {
    return R"("Torch.add.0.forward": {"input_args": [)" + Leaf(input) +
           R"(], "input_kwargs": {}, "output": [)" + Leaf(output) + "]}";
  }
  // The reason for which the output differs; "" when it does not.
  std::string Reason(const std::string& target, const std::string& golden) {
    WriteBoth("statistics", Entry("1.0", target), Entry("7.0", golden));
    const auto result = CompareRank(input(), {}, NullLog(), NullProgress(), nullptr);
    EXPECT_TRUE(result.ok());
    const std::vector<EntryDifference> found = FindDifferences(*result);
    EXPECT_EQ(found.size(), 1u);
    EXPECT_TRUE(found[0].compared);
    EXPECT_EQ(found[0].same, found[0].reason.empty());
    return found[0].reason;
  }
};

TEST_F(FirstDifference, HalfAPercentIsTheLimit) {
  EXPECT_EQ(Reason("1.004", "1.0"), "");  // inputs differ by far: they do not count
  EXPECT_EQ(Reason("1.006", "1.0"), "Torch.add.0.forward.output.0: max 1.006 against 1.0");
}

TEST_F(FirstDifference, ZeroNanAndInfinityCount) {
  EXPECT_NE(Reason("1e-30", "0.0"), "");
  EXPECT_EQ(Reason("0.0", "0.0"), "");
  EXPECT_NE(Reason("NaN", "1.0"), "");
  EXPECT_EQ(Reason("NaN", "NaN"), "");
  EXPECT_NE(Reason("Infinity", "-Infinity"), "");
  EXPECT_EQ(Reason("Infinity", "Infinity"), "");
}

TEST_F(FirstDifference, AnEntryWithoutPartnerIsNotCompared) {
  WriteBoth("statistics", Entry("1.0", "2.0"),
            R"("Torch.mul.0.forward": {"input_args": [], "output": [)" + Leaf("1.0") + "]}");
  const auto result = CompareRank(input(), {}, NullLog(), NullProgress(), nullptr);
  ASSERT_TRUE(result.ok());
  const std::vector<EntryDifference> found = FindDifferences(*result);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_FALSE(found[0].compared);
}

TEST_F(FirstDifference, IgnoredEntriesAreNeverBad) {
  const std::string fill = R"("Torch.fill.0.forward": {"input_args": [], "output": [)";
  WriteBoth("statistics", fill + Leaf("1.0") + "]}", fill + Leaf("2.0") + "]}");
  const auto result = CompareRank(input(), {}, NullLog(), NullProgress(), nullptr);
  ASSERT_TRUE(result.ok());
  const std::vector<EntryDifference> found = FindDifferences(*result);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_FALSE(found[0].same);
  EXPECT_FALSE(TraceOf(*result, found, 0, Face::kNew).entries[0].bad);
}

// Elements count where statistics agree: the same values in another order.
TEST_F(FirstDifference, ElementsCountInTensorMode) {
  const std::string entry = R"("Torch.add.0.forward": {"input_args": [], "output": [)" +
                            LeafJson("torch.float32", "[2]", "x.pt") + "]}";
  WriteBoth("tensor", entry, entry);
  WriteTensor<float>("target", "x", DType::kF32, {2}, {3, 4});
  WriteTensor<float>("golden", "x", DType::kF32, {2}, {4, 3});
  const auto result = CompareRank(input(), {}, NullLog(), NullProgress(), nullptr);
  ASSERT_TRUE(result.ok());
  // |(-1, 1)| / |(4, 3)| = 0.2828…
  EXPECT_EQ(FindDifferences(*result)[0].reason, "x: elements off by 0.283 of the golden norm");
}

class Products : public DumpTest {
 protected:
  // The target's tensor x times the matrix, against the golden x; Max of the absolute errors, or -1
  // when the row was not compared.
  double Error(config::MatrixProduct::Side side, const Shape& matrix_shape,
               const std::vector<float>& matrix, const std::string& golden_shape) {
    const std::string path = root_ + "m.pt";
    EXPECT_TRUE(
        formats::WritePt(path, DType::kF32, matrix_shape, false, std::as_bytes(std::span(matrix)))
            .ok());
    const auto entry = [](const std::string& shape) {
      return R"("Torch.add.0.forward": {"input_args": [], "output": [)" +
             LeafJson("torch.float32", shape, "x.pt") + "]}";
    };
    WriteBoth("tensor", entry("[2, 3]"), entry(golden_shape));
    config::PostprocessConfig config;
    config.products.push_back({side, false, path, {"x.pt"}});
    const auto products =
        Postprocessed::Make(config, input().target_json, input().golden_json, root_, log_);
    EXPECT_TRUE(products.ok());
    Input in = input();
    in.target_files = products->target_files();
    const auto result = CompareRank(in, {}, NullLog(), NullProgress(), nullptr);
    EXPECT_TRUE(result.ok());
    return result->rows[0].gate == Gate::kCompared ? result->rows[0].metrics->max_abs : -1;
  }
  struct KeepingLog final : LogSink {
    void Log(LogLevel, std::string_view message) override { lines.emplace_back(message); }
    std::vector<std::string> lines;
  } log_;
};

// x = [[1, 2, 3], [4, 5, 6]]; by hand: x·(1, 1, 1)ᵀ = (6, 15), (1, 1)·x = (5, 7, 9).
TEST_F(Products, RightAndLeft) {
  WriteTensor<float>("target", "x", DType::kF32, {2, 3}, {1, 2, 3, 4, 5, 6});
  WriteTensor<float>("golden", "x", DType::kF32, {2, 1}, {6, 15});
  EXPECT_EQ(Error(config::MatrixProduct::Side::kRight, {3, 1}, {1, 1, 1}, "[2, 1]"), 0);
  WriteTensor<float>("golden", "x", DType::kF32, {1, 3}, {5, 7, 9});
  EXPECT_EQ(Error(config::MatrixProduct::Side::kLeft, {1, 2}, {1, 1}, "[1, 3]"), 0);
  EXPECT_TRUE(log_.lines.empty());
}

TEST_F(Products, WhatDoesNotFitIsLeftAlone) {
  WriteTensor<float>("target", "x", DType::kF32, {2, 3}, {1, 2, 3, 4, 5, 6});
  WriteTensor<float>("golden", "x", DType::kF32, {2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(Error(config::MatrixProduct::Side::kRight, {2, 2}, {1, 1, 1, 1}, "[2, 3]"), 0);
  ASSERT_EQ(log_.lines.size(), 1u);
  EXPECT_NE(log_.lines[0].find("shape [2, 3] and the matrix [2, 2] do not fit"), std::string::npos);
}

// 17.1 and D22: the sum of group_list is 3, so the fourth row of either side means nothing.
TEST_F(Products, TailsBehindTheValidLengthAreCleared) {
  const std::string entry =
      R"("Torch.npu_grouped_matmul.0.forward": {"input_args": [], "input_kwargs": {"group_list": )" +
      LeafJson("torch.int64", "[2]", "n.pt") + R"(}, "output": [)" +
      LeafJson("torch.float32", "[4, 2]", "y.pt") + "]}";
  WriteBoth("tensor", entry, entry);
  for (const char* side : {"target", "golden"}) {
    WriteTensor<int64_t>(side, "n", DType::kI64, {2}, {1, 2});
  }
  WriteTensor<float>("target", "y", DType::kF32, {4, 2}, {1, 2, 3, 4, 5, 6, 99, 98});
  WriteTensor<float>("golden", "y", DType::kF32, {4, 2}, {1, 2, 3, 4, 5, 6.5F, -7, -8});
  const auto largest = [&](const config::PostprocessConfig& config) {
    const auto products =
        Postprocessed::Make(config, input().target_json, input().golden_json, root_, log_);
    EXPECT_TRUE(products.ok());
    Input in = input();
    in.target_files = products->target_files();
    in.golden_files = products->golden_files();
    const auto result = CompareRank(in, {}, NullLog(), NullProgress(), nullptr);
    EXPECT_TRUE(result.ok());
    return result->rows.back().metrics->max_abs;
  };
  EXPECT_EQ(largest({}), 0.5);
  config::PostprocessConfig off;
  off.target_lengths.clear();
  EXPECT_EQ(largest(off), 99);  // against 0 of the golden side
  off.golden_lengths.clear();
  EXPECT_EQ(largest(off), 106);
  EXPECT_TRUE(log_.lines.empty());
}

TEST_F(Products, TheScratchFolderGoes) {
  WriteTensor<float>("target", "x", DType::kF32, {2, 3}, {1, 2, 3, 4, 5, 6});
  WriteTensor<float>("golden", "x", DType::kF32, {1, 3}, {5, 7, 9});
  Error(config::MatrixProduct::Side::kLeft, {1, 2}, {1, 1}, "[1, 3]");
  for (const auto& item : std::filesystem::directory_iterator(root_)) {
    EXPECT_FALSE(item.path().filename().string().starts_with(".")) << item.path();
  }
}

}  // namespace
}  // namespace msprobe::compare
