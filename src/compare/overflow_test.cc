// NaN and infinity in small dumps: where they are seen, and what is taken from the arguments.
#include "compare/overflow.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace msprobe::compare {
namespace {

class Overflow : public testing::Test {
 protected:
  Overflow() {
    path_ = testing::TempDir() + "overflow_" +
            testing::UnitTest::GetInstance()->current_test_info()->name() + ".json";
  }
  ~Overflow() override { std::filesystem::remove(path_); }

  OverflowRank Read(const std::string& data) {
    std::ofstream(path_) << R"({"task": "statistics", "framework": "pytorch", "data": {)" << data
                         << "}}";
    Result<OverflowRank> out = ReadOverflow(path_);
    EXPECT_TRUE(out.ok()) << out.error().ToString();
    return out.ok() ? std::move(out).value() : OverflowRank();
  }
  static std::string Leaf(const std::string& max) {
    return R"({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [1], "Max": )" + max +
           R"(, "Min": 0.0, "Mean": 0.0, "Norm": 0.0})";
  }
  static std::string Entry(const std::string& name, const std::string& input,
                           const std::string& output) {
    return "\"" + name + R"(": {"input_args": [)" + input +
           R"(], "input_kwargs": {}, "output": [)" + output + "]}";
  }
  std::string path_;
};

TEST_F(Overflow, SourcesHaveCleanInputs) {
  const OverflowRank rank = Read(Entry("Torch.add.0.forward", Leaf("1.0"), Leaf("2.0")) + "," +
                                 Entry("Torch.exp.0.forward", Leaf("90.0"), Leaf("Infinity")) +
                                 "," + Entry("Torch.mul.0.forward", Leaf("Infinity"), Leaf("NaN")) +
                                 "," + Entry("Torch.clamp.0.forward", Leaf("NaN"), Leaf("1.0")));
  EXPECT_EQ(rank.total, 4u);
  ASSERT_EQ(rank.entries.size(), 3u);
  EXPECT_EQ(rank.entries[0].name, "Torch.exp.0.forward");
  EXPECT_TRUE(rank.entries[0].IsSource());
  EXPECT_EQ(rank.entries[0].reason, "output.0 has Max inf");
  EXPECT_NE(rank.entries[0].data_info.find("\"input_args\""), std::string::npos);
  EXPECT_FALSE(rank.entries[1].IsSource());
  EXPECT_EQ(rank.entries[1].reason, "input.0 has Max inf");
  EXPECT_TRUE(rank.entries[2].bad_input);
  EXPECT_FALSE(rank.entries[2].bad_output);
}

// Numbers in quotes, in any case, count as the numbers they are.
TEST_F(Overflow, TextsCount) {
  const OverflowRank rank = Read(Entry("Torch.a.0.forward", "", Leaf("\"-INF\"")) + "," +
                                 Entry("Torch.b.0.forward", "", Leaf("\"nan\"")) + "," +
                                 Entry("Torch.c.0.forward", "", Leaf("\"banana\"")));
  ASSERT_EQ(rank.entries.size(), 2u);
  EXPECT_EQ(rank.entries[0].reason, "output.0 has Max -inf");
  EXPECT_EQ(rank.entries[1].reason, "output.0 has Max nan");
}

// D32: lists in lists and keyword values.
TEST_F(Overflow, NestedContainersAreSearched) {
  const OverflowRank rank = Read(
      Entry("Torch.a.0.forward", "", fmt::format("[{}, {{\"k\": {}}}]", Leaf("1.0"), Leaf("NaN"))));
  ASSERT_EQ(rank.entries.size(), 1u);
  EXPECT_EQ(rank.entries[0].reason, "output.0.1.k has Max nan");
}

TEST_F(Overflow, UninitialisedMemoryIsNoSource) {
  const OverflowRank rank = Read(Entry("Torch.empty.0.forward", "", Leaf("Infinity")));
  EXPECT_TRUE(rank.entries.empty());
}

TEST_F(Overflow, BackwardEntriesShowInputAndOutput) {
  const OverflowRank rank = Read("\"Torch.exp.0.backward\": {\"input\": [" + Leaf("1.0") +
                                 "], \"output\": [" + Leaf("NaN") + "]}");
  ASSERT_EQ(rank.entries.size(), 1u);
  EXPECT_NE(rank.entries[0].data_info.find("{\"input\": ["), std::string::npos);
}

TEST_F(Overflow, PartnersComeFromTheArguments) {
  const std::string group = R"({"type": "torch.ProcessGroup", "group_ranks": [4, 5]})";
  const OverflowRank rank =
      Read(R"("Distributed.broadcast.0.forward": {"input_args": [)" + Leaf("1.0") +
           R"(, {"type": "int", "value": 5}], "input_kwargs": {"group": )" + group +
           R"(}, "output": []}, "Distributed.send.0.forward": {"input_args": [)" + Leaf("1.0") +
           R"(], "input_kwargs": {"group_dst": {"type": "int", "value": 1}, "group": )" + group +
           R"(}, "output": []})");
  ASSERT_EQ(rank.entries.size(), 2u);
  EXPECT_EQ(rank.entries[0].comm.src, 5);
  EXPECT_EQ(rank.entries[0].comm.group, (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(rank.entries[1].comm.dst, 5);  // place 1 of the group
}

TEST_F(Overflow, AFileThatIsNoDumpIsRefused) {
  std::ofstream(path_) << "[]";
  const Result<OverflowRank> out = ReadOverflow(path_);
  ASSERT_FALSE(out.ok());
  EXPECT_EQ(out.error().code, ErrorCode::kMalformed);
}

}  // namespace
}  // namespace msprobe::compare
