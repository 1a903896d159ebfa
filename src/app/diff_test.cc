#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "app/diff_app.h"
#include "app/inspect_app.h"
#include "formats/tensor_file.h"

namespace msprobe::app {
namespace {

class DiffTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "msprobe-diff-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  template <class T>
  std::string Pt(const std::string& name, DType dtype, const Shape& shape, std::vector<T> values) {
    const std::string path = folder_ + "/" + name;
    const Bytes bytes(reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T));
    EXPECT_TRUE(formats::WritePt(path, dtype, shape, false, bytes).ok());
    return path;
  }
  std::string Text(const std::string& name, const std::string& content) {
    std::filesystem::create_directories(std::filesystem::path(folder_ + "/" + name).parent_path());
    std::ofstream(folder_ + "/" + name) << content;
    return folder_ + "/" + name;
  }
  std::string folder_;
};

std::vector<int64_t> Indexes(const std::vector<DiffPlace>& places) {
  std::vector<int64_t> out;
  for (const DiffPlace& p : places) out.push_back(p.index);
  return out;
}

// Two rows of three: [1 2 2; 0 0 4] against [1 2 0; 0 0 1]. Squared differences 4 and 9, golden
// norm sqrt(6), inner product 1 + 4 + 4 = 9, target norm 5.
TEST_F(DiffTest, FiguresByHand) {
  const auto t = Pt<float>("t.pt", DType::kF32, {2, 3}, {1, 2, 2, 0, 0, 4});
  const auto g = Pt<float>("g.pt", DType::kF32, {2, 3}, {1, 2, 0, 0, 0, 1});
  const auto d = DiffTensors(t, g, {.first = 1, .above = 0});
  ASSERT_TRUE(d.ok()) << d.error().ToString();
  EXPECT_EQ(d->elements, 6);
  EXPECT_EQ(d->different, 2);
  EXPECT_EQ(d->class_differs, 0);
  EXPECT_DOUBLE_EQ(d->relative_l2, std::sqrt(13.0 / 6.0));
  EXPECT_DOUBLE_EQ(d->cosine, 9 / std::sqrt(6.0) / 5);
  EXPECT_DOUBLE_EQ(d->bias, 5.0 / 6);
  EXPECT_EQ(Indexes(d->first), std::vector<int64_t>{2});
  EXPECT_EQ(Indexes(d->worst), std::vector<int64_t>{5});
  EXPECT_EQ(d->decades, (std::map<int, int64_t>{{0, 2}}));
  ASSERT_EQ(d->shares.size(), 2u);
  EXPECT_EQ(d->shares[0], (std::vector<double>{4.0 / 13, 9.0 / 13}));
  EXPECT_EQ(d->shares[1], (std::vector<double>{0, 0, 1}));
  EXPECT_EQ(SharpestAxis(*d), 1);
  EXPECT_EQ(IndexText(5, d->shape), "[1, 2]");
}

TEST_F(DiffTest, NonFiniteElementsAreAClassOfTheirOwn) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float nan = std::nanf("");
  const auto t = Pt<float>("t.pt", DType::kF32, {5}, {nan, kInf, nan, kInf, 1});
  const auto g = Pt<float>("g.pt", DType::kF32, {5}, {nan, kInf, 2, -kInf, 1.5});
  const auto d = DiffTensors(t, g, {});
  ASSERT_TRUE(d.ok());
  EXPECT_EQ(d->different, 3);
  EXPECT_EQ(d->class_differs, 2);
  EXPECT_EQ(Indexes(d->worst), (std::vector<int64_t>{2, 3, 4}));
  EXPECT_DOUBLE_EQ(d->relative_l2, 1.0 / 3);  // of the last pair alone
  EXPECT_EQ(d->decades, (std::map<int, int64_t>{{-1, 1}}));
}

TEST_F(DiffTest, OtherDtypesComplexAndEmpty) {
  const auto wide = Pt<double>("w.pt", DType::kF64, {2}, {1, 2});
  const auto narrow = Pt<float>("n.pt", DType::kF32, {2}, {1, 2.5});
  const auto mixed = DiffTensors(wide, narrow, {.first = 5, .above = 0.5});
  ASSERT_TRUE(mixed.ok());
  EXPECT_EQ(mixed->different, 0);  // 0.5 is not above 0.5
  EXPECT_EQ(SharpestAxis(*mixed), -1);
  // 3+4i against 0: off by 5.
  const auto c = Pt<float>("c.pt", DType::kC64, {1}, {3, 4});
  const auto z = Pt<float>("z.pt", DType::kC64, {1}, {0, 0});
  const auto complex = DiffTensors(c, z, {});
  ASSERT_TRUE(complex.ok());
  EXPECT_DOUBLE_EQ(complex->worst.at(0).difference, 5);
  EXPECT_TRUE(std::isinf(complex->relative_l2));
  const auto half = DiffTensors(c, Pt<float>("h.pt", DType::kF32, {1}, {0}), {});
  EXPECT_EQ(half.error().code, ErrorCode::kMismatch);
  const auto none = Pt<float>("e.pt", DType::kF32, {0, 4}, {});
  const auto empty = DiffTensors(none, none, {});
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ(empty->elements, 0);
}

TEST_F(DiffTest, RefusesOtherShapesAndWhatIsNoTensor) {
  const auto a = Pt<float>("a.pt", DType::kF32, {2}, {1, 2});
  const auto b = Pt<float>("b.pt", DType::kF32, {1, 2}, {1, 2});
  const auto shapes = DiffTensors(a, b, {});
  ASSERT_FALSE(shapes.ok());
  EXPECT_EQ(shapes.error().code, ErrorCode::kMismatch);
  EXPECT_EQ(shapes.error().path, a);
  EXPECT_FALSE(DiffTensors(a, Text("x.pt", "no tensor"), {}).ok());
  EXPECT_EQ(DiffTensors(a, folder_ + "/none.pt", {}).error().code, ErrorCode::kNotFound);
}

constexpr const char* kDump =
    R"({"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": null, "data": {
 "Torch.add.0.forward": {"input_args": [{"type": "torch.Tensor", "dtype": "torch.float32",
   "shape": [2], "Max": 1.0, "Min": 0.0, "Mean": 0.5, "Norm": 1.0, "requires_grad": false}],
   "input_kwargs": {}, "output": [{"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2],
   "Max": %, "Min": 0.0, "Mean": 0.5, "Norm": 1.0, "requires_grad": false}]},
 "Torch.mul.0.forward": {"input_args": [], "input_kwargs": {}, "output": [{"type": "int", "value": 3}]}
}})";

std::string DumpWith(const std::string& value) {
  std::string out = kDump;
  return out.replace(out.find('%'), 1, value);
}

TEST_F(DiffTest, EntriesWithoutFilesCompareTheirStatistics) {
  DiffOptions options;
  options.target = Text("t/dump.json", DumpWith("2.0"));
  options.golden = Text("g/dump.json", DumpWith("1.0"));
  options.entry = "Torch.add.0.forward";
  const auto run = Diff(options);
  ASSERT_TRUE(run.ok()) << run.error().ToString();
  ASSERT_EQ(run->items.size(), 2u);
  EXPECT_EQ(run->items[0].target, run->items[0].golden);
  EXPECT_EQ(WorstItem(*run)->name, "Torch.add.0.forward.output.0");
  EXPECT_EQ(run->items[1].target[2], "2.0");
  EXPECT_EQ(run->items[1].golden[2], "1.0");
  EXPECT_EQ(DiffClosingLine(*run), "2 compared, 1 differ, 0 on one side only");
  options.target = folder_ + "/t";  // the folder of a rank
  options.entry = "Torch.add.0.forward.output.0";
  options.golden_entry = "Torch.mul.0.forward.output.0";
  EXPECT_EQ(Diff(options)->items.size(), 1u);
  options.golden_entry = "Torch.mul.0.forwad";
  const auto none = Diff(options);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(none.error().hint, "did you mean Torch.mul.0.forward?");
}

TEST_F(DiffTest, InspectCountsAndFilters) {
  InspectOptions options;
  options.path = Text("t/dump.json", DumpWith("2.0"));
  const auto all = Inspect(options);
  ASSERT_TRUE(all.ok()) << all.error().ToString();
  EXPECT_EQ(all->dumps.at(0).entries, 2u);
  EXPECT_EQ(all->dumps[0].leaves, 3u);
  EXPECT_EQ(all->dumps[0].matching.size(), 2u);
  EXPECT_EQ(all->dumps[0].kinds.at("forward"), 2u);
  EXPECT_EQ(all->dumps[0].torn, "");
  options.entry = "Torch.*.forward";
  EXPECT_EQ(Inspect(options)->dumps[0].matching.size(), 2u);
  options.entry = "Torch.mul";
  const auto one = Inspect(options);
  ASSERT_EQ(one->dumps[0].matching.size(), 1u);
  EXPECT_EQ(one->dumps[0].matching[0].leaves[0].max, "3");
  options.entry = "Torch.mull.0.forward";
  const auto none = Inspect(options);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().hint, "did you mean Torch.mul.0.forward?");
}

TEST_F(DiffTest, InspectSaysWhereADumpIsTorn) {
  const std::string whole = DumpWith("2.0");
  InspectOptions options;
  options.path = Text("t/dump.json", whole.substr(0, whole.find("\"Torch.mul")));
  const auto run = Inspect(options);
  ASSERT_TRUE(run.ok()) << run.error().ToString();
  EXPECT_EQ(run->dumps.at(0).entries, 1u);
  EXPECT_NE(run->dumps[0].torn, "");
  Text("root/step0/rank0/dump.json", whole);
  Text("root/step0/rank1/dump.json", "{");
  options.path = folder_ + "/root";
  const auto folder = Inspect(options);
  ASSERT_TRUE(folder.ok());
  ASSERT_EQ(folder->dumps.size(), 2u);
  EXPECT_EQ(folder->dumps[0].entries, 2u);
  EXPECT_NE(folder->dumps[1].problem, "");
}

TEST(Pattern, StarsAndQuestionMarks) {
  EXPECT_TRUE(MatchesPattern("Torch.add.0.forward", "Torch.*.forward"));
  EXPECT_TRUE(MatchesPattern("ab", "a?"));
  EXPECT_TRUE(MatchesPattern("", "*"));
  EXPECT_FALSE(MatchesPattern("a", "a?"));
  EXPECT_FALSE(MatchesPattern("Torch.add.0.backward", "Torch.*.forward"));
  EXPECT_FALSE(MatchesPattern(std::string(5000, 'a'), "*a*a*a*a*a*a*b"));
}

}  // namespace
}  // namespace msprobe::app
