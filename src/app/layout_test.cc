#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "app/layout_app.h"
#include "app/layout_leaf.h"
#include "base/file.h"
#include "config/layout_config.h"

namespace msprobe::app {
namespace {

using config::Held;
constexpr Held kSame{Held::How::kSame, 0}, kSum{Held::How::kSum, 0}, kRows{Held::How::kAxis, 0},
    kColumns{Held::How::kAxis, -1};

Elements Make(Shape shape, const std::vector<float>& values) {
  Elements out;
  out.shape = std::move(shape);
  out.bytes.resize(values.size() * sizeof(float));
  std::memcpy(out.bytes.data(), values.data(), out.bytes.size());
  return out;
}

std::vector<float> Values(const Elements& e) {
  std::vector<float> out(e.bytes.size() / sizeof(float));
  std::memcpy(out.data(), e.bytes.data(), e.bytes.size());
  return out;
}

// [[1, 2], [3, 4]] beside [[5], [6]].
TEST(LayoutElements, JoinAlongTheLastAxis) {
  const auto whole = JoinElements({Make({2, 2}, {1, 2, 3, 4}), Make({2, 1}, {5, 6})}, kColumns);
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->shape, (Shape{2, 3}));
  EXPECT_EQ(Values(*whole), (std::vector<float>{1, 2, 5, 3, 4, 6}));
}

TEST(LayoutElements, JoinAlongTheFirstAxisAddUpAndRefuse) {
  const auto rows = JoinElements({Make({1, 2}, {1, 2}), Make({1, 2}, {3, 4})}, kRows);
  EXPECT_EQ(Values(*rows), (std::vector<float>{1, 2, 3, 4}));
  const auto sum = JoinElements({Make({2}, {1, 2}), Make({2}, {0.5, -4})}, kSum);
  EXPECT_EQ(Values(*sum), (std::vector<float>{1.5, -2}));
  EXPECT_FALSE(JoinElements({Make({2}, {1, 2}), Make({3}, {1, 2, 3})}, kSum).ok());
  EXPECT_FALSE(
      JoinElements({Make({2, 1}, {1, 2}), Make({3, 2}, {1, 2, 3, 4, 5, 6})}, kColumns).ok());
}

// Of [1, 2, 3] and [5]: max 5, min 1, mean 11/4, norm sqrt(1 + 4 + 9 + 25).
TEST(LayoutStatistics, ComposeAlongAnAxis) {
  const std::vector<Recorded> parts = {{{3}, 3.0, 1.0, 2.0, std::sqrt(14.0)},
                                       {{1}, 5.0, 5.0, 5.0, 5.0}};
  const auto whole = JoinRecorded(parts, kRows);
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->shape, (Shape{4}));
  EXPECT_EQ(*whole->max, 5);
  EXPECT_EQ(*whole->min, 1);
  EXPECT_DOUBLE_EQ(*whole->mean, 2.75);
  EXPECT_DOUBLE_EQ(*whole->norm, std::sqrt(39.0));
}

TEST(LayoutStatistics, OfASumOnlyTheMeanFollows) {
  const std::vector<Recorded> parts = {{{2}, 3.0, 1.0, 2.0, 4.0}, {{2}, 1.0, 0.0, 0.5, 1.0}};
  const auto whole = JoinRecorded(parts, kSum);
  ASSERT_TRUE(whole);
  EXPECT_DOUBLE_EQ(*whole->mean, 2.5);
  EXPECT_FALSE(whole->max || whole->min || whole->norm);
}

TEST(LayoutStatistics, AMissingFigureStaysMissingAndNanSpreads) {
  std::vector<Recorded> parts = {{{1}, 3.0, 1.0, 2.0, std::nullopt}, {{1}, NAN, NAN, NAN, 1.0}};
  const auto whole = JoinRecorded(parts, kRows);
  ASSERT_TRUE(whole);
  EXPECT_FALSE(whole->norm);
  EXPECT_TRUE(std::isnan(*whole->max) && std::isnan(*whole->mean));
}

class LayoutRun : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "layout_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
  }
  void Write(const std::string& place, const std::string& text) {
    const std::string path = JoinPath(folder_, place);
    ASSERT_TRUE(CreateDirectories(DirName(path)).ok());
    auto file = AtomicFile::Create(path);
    ASSERT_TRUE(file.ok() && file->Write(text).ok() && file->Commit().ok());
  }
  static std::string Leaf(const Recorded& r) {
    return R"({"type": "torch.Tensor", "dtype": "torch.float32", "shape": )" + ShapeText(r.shape) +
           R"(, "Max": )" + std::to_string(*r.max) + R"(, "Min": )" + std::to_string(*r.min) +
           R"(, "Mean": )" + std::to_string(*r.mean) + R"(, "Norm": )" + std::to_string(*r.norm) +
           R"(, "requires_grad": false})";
  }
  static std::string Dump(const std::string& output) {
    return R"({"task": "statistics", "level": "L1", "framework": "pytorch", "data": {
      "Functional.linear.0.forward": {"input_args": [], "input_kwargs": {}, "output": [)" +
           output + "]}}}";
  }
  Result<CompareRun> Run() {
    CompareOptions options;
    options.target = JoinPath(folder_, "t");
    options.golden = JoinPath(folder_, "g");
    options.output_dir = JoinPath(folder_, "out");
    options.culprit = CulpritChoice::kOff;
    return CompareWithLayout(options, JoinPath(folder_, "layout.yaml"), NullLog(), NullProgress(),
                             nullptr);
  }
  // Halves [1, 2] and [3, -4] against the whole: norm sqrt(30), mean 0.5.
  void WriteHalves(double golden_mean) {
    Write("t/rank0/dump.json", Dump(Leaf({{1, 2}, 2.0, 1.0, 1.5, std::sqrt(5.0)})));
    Write("t/rank1/dump.json", Dump(Leaf({{1, 2}, 3.0, -4.0, -0.5, 5.0})));
    Write("g/rank0/dump.json", Dump(Leaf({{1, 4}, 3.0, -4.0, golden_mean, std::sqrt(30.0)})));
  }
  std::string folder_;
};

TEST_F(LayoutRun, PartsAreComparedWithTheWhole) {
  WriteHalves(0.5);
  Write("layout.yaml", "target: {tp: 2}\ngolden: {tp: 1}\ntensors:\n- {name: '*', tp: -1}\n");
  const auto run = Run();
  ASSERT_TRUE(run.ok()) << run.error().ToString();
  EXPECT_EQ(run->counts.total, 1u);
  EXPECT_EQ(run->counts.pass, 1u);
}

TEST_F(LayoutRun, AnErrorInTheWholeIsFound) {
  WriteHalves(2.5);
  Write("layout.yaml", "target: {tp: 2}\ngolden: {tp: 1}\ntensors:\n- {name: '*', tp: -1}\n");
  const auto run = Run();
  ASSERT_TRUE(run.ok()) << run.error().ToString();
  EXPECT_EQ(run->counts.pass, 0u);
  EXPECT_EQ(run->counts.unmatched, 0u);
}

TEST_F(LayoutRun, WithoutARuleTheWayThatFitsIsTakenAndCalledAGuess) {
  WriteHalves(0.5);
  Write("layout.yaml", "target: {tp: 2}\ngolden: {tp: 1}\n");
  const auto run = Run();
  ASSERT_TRUE(run.ok()) << run.error().ToString();
  EXPECT_EQ(run->counts.pass, 1u);
  std::string found;
  for (const auto& e : std::filesystem::directory_iterator(JoinPath(folder_, "out"))) {
    if (e.path().extension() == ".yaml") found = e.path().string();
  }
  const auto text = ReadTextFile(found, 1 << 20);
  ASSERT_TRUE(text.ok());
  EXPECT_NE(
      text->find(
          "- {name: 'Functional.linear.*.forward.output.0', tp: 1}  # guess, 1 tensors, fits"),
      std::string::npos)
      << *text;
  // What was written can be given again.
  EXPECT_TRUE(config::ReadLayout(found).ok());
}

TEST_F(LayoutRun, PartsThatDoNotFitAreNotCompared) {
  WriteHalves(0.5);
  Write("t/rank1/dump.json", Dump(Leaf({{3, 2}, 3.0, -4.0, -0.5, 5.0})));
  Write("layout.yaml", "target: {tp: 2}\ngolden: {tp: 1}\ntensors:\n- {name: '*', tp: 1}\n");
  const auto run = Run();
  ASSERT_TRUE(run.ok()) << run.error().ToString();
  EXPECT_EQ(run->counts.unmatched, run->counts.total);
}

TEST_F(LayoutRun, PartsThatFitOnNeitherSideAreNotAlike) {
  for (const char* side : {"t", "g"}) {
    Write(JoinPath(side, "rank0/dump.json"), Dump(Leaf({{1, 2}, 2.0, 1.0, 1.5, std::sqrt(5.0)})));
    Write(JoinPath(side, "rank1/dump.json"), Dump(Leaf({{3, 2}, 3.0, -4.0, -0.5, 5.0})));
  }
  Write("layout.yaml", "target: {tp: 2}\ngolden: {tp: 2}\ntensors:\n- {name: '*', tp: 1}\n");
  const auto run = Run();
  ASSERT_TRUE(run.ok()) << run.error().ToString();
  EXPECT_EQ(run->counts.total, 1u);
  EXPECT_EQ(run->counts.unmatched, 1u);
}

TEST_F(LayoutRun, AMeshOfAnotherSizeIsRefused) {
  WriteHalves(0.5);
  Write("layout.yaml", "target: {tp: 4}\ngolden: {tp: 1}\n");
  const auto run = Run();
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.error().code, ErrorCode::kMismatch);
  EXPECT_EQ(run.error().message, "2 ranks, the layout says 4");
}

TEST_F(LayoutRun, WhatIsWrongWithTheFileIsSaidWithItsPlace) {
  const std::array<std::pair<const char*, const char*>, 6> wrong = {{
      {"", "the file is empty"},
      {"target: {tp: 2}\n", "missing"},
      {"target: {tp: 0}\ngolden: {tp: 1}\n", "no size"},
      {"target: {tp: 2}\ngolden: {dp: 1}\n", "missing"},
      {"target: {tp: 2}\ngolden: {tp: 1}\ntensors: [{name: '*', tp: left}]\n",
       "has no value 'left'"},
      {"target: {tp: 2}\ngolden: {tp: 1}\ntensors: [{name: '*', pp: 1}]\n", "unknown key"},
  }};
  for (const auto& [text, message] : wrong) {
    Write("layout.yaml", text);
    const auto layout = config::ReadLayout(JoinPath(folder_, "layout.yaml"));
    ASSERT_FALSE(layout.ok()) << text;
    EXPECT_EQ(layout.error().message, message) << text;
  }
}

}  // namespace
}  // namespace msprobe::app
