// Collectives from the inputs of all ranks, one dump by itself, constants learned from clean runs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "culprit/collectives.h"
#include "culprit/culprit.h"
#include "culprit/floor.h"
#include "formats/tensor_file.h"

namespace msprobe::culprit {
namespace {

using ::testing::HasSubstr;

class Ranks : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() /
            ("ranks_" + std::to_string(getpid()) + "_" +
             ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::filesystem::path Folder(int rank) const { return root_ / ("rank" + std::to_string(rank)); }

  // A leaf with its file; the file's name is `name`.
  std::string Tensor(int rank, const std::string& name, const std::vector<float>& x) {
    const auto folder = Folder(rank) / "dump_tensor_data";
    std::filesystem::create_directories(folder);
    const auto n = static_cast<int64_t>(x.size());
    const std::vector<int64_t> shape = {n};
    EXPECT_TRUE(formats::WritePt((folder / (name + ".pt")).string(), DType::kF32, shape, false,
                                 std::as_bytes(std::span(x)))
                    .ok());
    return fmt::format(
        R"({{"type": "torch.Tensor", "dtype": "torch.float32", "shape": [{}], "requires_grad": false, "data_name": "{}.pt"}})",
        n, name);
  }

  RankDump Write(int rank, const std::string& data, int world = 2) {
    std::filesystem::create_directories(Folder(rank));
    const auto path = Folder(rank) / "dump.json";
    std::ofstream(path) << R"({"task": "tensor", "level": "L1", "dump_data_dir": "x", "data": {)"
                        << data << "}"
                        << (world > 0 ? fmt::format(R"(, "msprobe": {{"world_size": {}}})", world)
                                      : "")
                        << "}";
    return {rank, path.string()};
  }

  // One call with positional inputs and its results.
  static std::string Call(const std::string& name, const std::string& inputs,
                          const std::string& outputs, const std::string& kwargs = "") {
    return fmt::format(
        R"("Distributed.{}.forward": {{"input_args": [{}], "input_kwargs": {{{}}}, "output": [{}]}})",
        name, inputs, kwargs, outputs);
  }

  // all_reduce of {1, 2} and {3, 5}, whose sum is {4, 7}; rank 1 gets `second`.
  std::vector<RankDump> AllReduce(const std::vector<float>& second, const std::string& kwargs = "",
                                  int world = 2) {
    const RankDump a = Write(
        0, Call("all_reduce.0", Tensor(0, "i", {1, 2}), Tensor(0, "o", {4, 7}), kwargs), world);
    const RankDump b = Write(
        1, Call("all_reduce.0", Tensor(1, "i", {3, 5}), Tensor(1, "o", second), kwargs), world);
    return {a, b};
  }

  static CollectiveScore Only(const CollectiveScores& scores) {
    EXPECT_EQ(scores.size(), 1u);
    return scores.empty() ? CollectiveScore() : scores.begin()->second;
  }

  std::filesystem::path root_;
};

TEST_F(Ranks, ASumThatIsTheSumIsWithinItsLimitAndAnotherIsNot) {
  const auto scores = JudgeCollectives(AllReduce({4, 7.5F}), false);
  ASSERT_EQ(scores.size(), 2u);
  const CollectiveScore right = Only(scores[0]);
  EXPECT_TRUE(right.judged()) << right.reason;
  EXPECT_FALSE(right.over());
  EXPECT_EQ(right.deviation, 0);
  const CollectiveScore wrong = Only(scores[1]);
  EXPECT_TRUE(wrong.over());
  EXPECT_EQ(wrong.leaf, "output.0");
  const double norm = std::sqrt(16.0 + 49);
  EXPECT_DOUBLE_EQ(wrong.deviation, 0.5 / norm);
  // 1e-5 of the sum and four roundings of the norms of what was given.
  const double given = std::sqrt(5.0) + std::sqrt(34.0);
  EXPECT_NEAR(wrong.limit, 1e-5 + 4 * 0x1p-24 * given / norm, 1e-15);
}

TEST_F(Ranks, TheOperationDecides) {
  const std::string max =
      R"("op": {"type": "torch.distributed.ReduceOp", "value": "RedOpType.MAX"})";
  const auto scores = JudgeCollectives(AllReduce({3, 5}, max), false);
  EXPECT_TRUE(Only(scores[0]).over());   // {4, 7} is the sum
  EXPECT_FALSE(Only(scores[1]).over());  // {3, 5} the largest
  const std::string odd =
      R"("op": {"type": "torch.distributed.ReduceOp", "value": "RedOpType.BXOR"})";
  EXPECT_THAT(Only(JudgeCollectives(AllReduce({3, 5}, odd), false)[0]).reason, HasSubstr("BXOR"));
}

TEST_F(Ranks, OtherForms) {
  const std::string none = "null";
  const auto two = [&](int r, const std::vector<float>& a, const std::vector<float>& b) {
    return fmt::format("[{}, {}]", Tensor(r, "a", a), Tensor(r, "b", b));
  };
  std::vector<RankDump> dumps;
  for (int r = 0; r < 2; ++r) {
    const auto v = static_cast<float>(r + 1);
    const std::string source = R"("src": {"type": "int", "value": 1})";
    std::string data = Call("broadcast.0", Tensor(r, "c", {v}), Tensor(r, "d", {2}), source);
    data.append(",").append(Call("all_gather.0", none + "," + Tensor(r, "e", {v, v}),
                                 two(r, {1, 1}, {2, r == 0 ? 2.F : 3.F})));
    data.append(",").append(Call("all_gather_into_tensor.0", none + "," + Tensor(r, "g", {v, v}),
                                 Tensor(r, "h", {1, 1, 2, 2})));
    data.append(",").append(Call("reduce_scatter_tensor.0",
                                 none + "," + Tensor(r, "k", {v, 10 * v}),
                                 Tensor(r, "l", {r == 0 ? 3.F : 30.F})));
    dumps.push_back(Write(r, data));
  }
  const auto scores = JudgeCollectives(dumps, true);
  for (size_t r = 0; r < 2; ++r) {
    for (const char* name :
         {"broadcast", "all_gather", "all_gather_into_tensor", "reduce_scatter_tensor"}) {
      const CollectiveScore& s = scores[r].at(fmt::format("Distributed.{}.0.forward", name));
      EXPECT_TRUE(s.judged()) << name << ": " << s.reason;
      EXPECT_EQ(s.over(), r == 1 && std::string_view(name) == "all_gather") << name << r;
    }
  }
  const CollectiveScore& wrong = scores[1].at("Distributed.all_gather.0.forward");
  EXPECT_EQ(wrong.leaf, "output.0.1");
  EXPECT_DOUBLE_EQ(wrong.deviation, 1 / std::sqrt(8.0));
}

TEST_F(Ranks, WhatIsMissingIsAReason) {
  const auto reason = [](const std::vector<RankDump>& dumps, bool strict = false) {
    return Only(JudgeCollectives(dumps, strict)[0]).reason;
  };
  std::vector<RankDump> dumps = AllReduce({4, 7}, "", 3);
  EXPECT_EQ(reason(dumps), "rank 2 of its group has no dump here");
  dumps = AllReduce({4, 7}, "", 0);
  EXPECT_EQ(reason(dumps), "");
  EXPECT_EQ(reason(dumps, true), "the ranks of its group are not known");
  const std::string group =
      R"("group": {"type": "torch.ProcessGroup", "group_ranks": [0, 1], "group_id": "0"})";
  EXPECT_EQ(reason(AllReduce({4, 7}, group, 0), true), "");
  EXPECT_EQ(reason(AllReduce({4, 7, 1}, "", 2)), "");
  EXPECT_EQ(Only(JudgeCollectives(AllReduce({4, 7, 1}, "", 2), false)[1]).reason,
            "its result has another size than its inputs say");
  dumps = AllReduce({4, 7});
  std::filesystem::remove(Folder(1) / "dump_tensor_data" / "i.pt");
  EXPECT_EQ(reason(dumps), "what a rank gave has neither elements nor a sketch");
  std::ofstream(dumps[1].dump_json) << "no dump";
  EXPECT_EQ(reason(dumps), "rank 1 of its group has no dump here");
  Write(1, "");
  EXPECT_EQ(reason(dumps), "the ranks of its group made other calls");
  EXPECT_EQ(reason({Write(0, Call("gather.0", Tensor(0, "i", {1}), Tensor(0, "o", {1})))}),
            "this kind is not judged across ranks");
}

// Rank 0 gave another number than in the golden run, so that rank 1 receives another sum:
// inherited.
TEST_F(Ranks, WhatAnotherRankGaveIsInheritedAndAWrongSumIsIntroduced) {
  const std::vector<RankDump> golden = AllReduce({4, 7});
  std::filesystem::rename(root_, root_.string() + "_golden");
  const auto golden_json = [&](int rank) {
    return root_.string() + "_golden/rank" + std::to_string(rank) + "/dump.json";
  };
  const auto find = [&](int rank, const CollectiveScores* scores) {
    Input input;
    input.target_json = (Folder(rank) / "dump.json").string();
    input.golden_json = golden_json(rank);
    if (scores != nullptr) {
      input.collectives = [scores] { return CollectivesOfRank{scores, nullptr}; };
    }
    auto report = FindCulprit(input, {});
    EXPECT_TRUE(report.ok());
    return report.ok() ? *report : Report();
  };
  const std::vector<RankDump> target = {
      Write(0, Call("all_reduce.0", Tensor(0, "i", {2, 2}), Tensor(0, "o", {5, 7}))),
      Write(1, Call("all_reduce.0", Tensor(1, "i", {3, 5}), Tensor(1, "o", {5, 7})))};
  const auto scores = JudgeCollectives(target, false);
  const Report alone = find(1, nullptr);
  ASSERT_EQ(alone.findings.size(), 1u);  // its own input is the golden run's
  EXPECT_EQ(alone.findings[0].rule, 13);
  EXPECT_EQ(alone.collectives, 0u);
  EXPECT_EQ(alone.collectives_by_growth.at("each rank was searched by itself"), 1u);
  const Report together = find(1, &scores[1]);
  EXPECT_TRUE(together.findings.empty());
  EXPECT_EQ(together.collectives, 1u);
  EXPECT_TRUE(together.collectives_by_growth.empty());

  const auto wrong = JudgeCollectives(AllReduce({4, 7.5F}), false);
  const Report found = find(1, &wrong[1]);
  ASSERT_EQ(found.findings.size(), 1u);
  EXPECT_EQ(found.findings[0].kind, FindingKind::kIntroduced);
  EXPECT_EQ(found.findings[0].rule, 9);
  EXPECT_EQ(found.findings[0].entry, "Distributed.all_reduce.0.forward");
  EXPECT_THAT(found.findings[0].sentence, HasSubstr("not what the inputs of all ranks"));
  std::filesystem::remove_all(root_.string() + "_golden");
}

// ---- one dump

TEST_F(Ranks, OneDumpNamesWhatItsReplaysDoNotExplain) {
  const auto call = [&](const std::string& name) {
    return fmt::format(
        R"("Torch.exp.{}.forward": {{"input_args": [{}], "input_kwargs": {{}}, "output": [{}]}})",
        name, Tensor(0, "i" + name, {1}), Tensor(0, "o" + name, {2}));
  };
  Input input;
  input.target_json = Write(0, call("0") + "," + call("1") + "," + call("2")).dump_json;
  Options options;
  std::string asked;
  options.replay = [&](const std::string& jobs) -> Result<std::string> {
    asked = jobs;
    return std::string(
        R"({"Torch.exp.0.forward": {"leaves": [{"leaf": "output.0", "score": 0.9, "rms": 0.9, "introduced": 0, "norm": 1}]},
            "Torch.exp.1.forward": {"leaves": [{"leaf": "output.0", "score": 1000, "rms": 9, "introduced": 0.5, "norm": 2}]},
            "Torch.exp.2.forward": {"reason": "random"}})");
  };
  auto report = FindInOneDump(input, options);
  ASSERT_TRUE(report.ok());
  EXPECT_THAT(asked, HasSubstr(R"(["Torch.exp.1", "", true, false])"));
  EXPECT_EQ(report->verdict, Verdict::kFound);
  ASSERT_EQ(report->findings.size(), 1u);
  const Finding& f = report->findings[0];
  EXPECT_EQ(f.entry, "Torch.exp.1.forward");
  EXPECT_EQ(f.golden_entry, "");
  EXPECT_EQ(f.rule, 7);
  EXPECT_EQ(f.sentence,
            "Torch.exp.1.forward computes output.0 wrong from its own inputs: 1e+03 times the "
            "error that rounding explains, relative error 0.25.");
  EXPECT_EQ(report->replayed, 2u);
  EXPECT_EQ(report->discoveries, 1u);
  EXPECT_EQ(report->not_replayed.at("random"), 1u);
  EXPECT_TRUE(report->one_dump);
  const auto scores = ScoresOf(input.target_json, options);
  ASSERT_TRUE(scores.ok());
  EXPECT_THAT(*scores, ::testing::ElementsAre(0.9, 1000));
}

TEST_F(Ranks, OneDumpWithoutTensorsOrPythonIsNotJudged) {
  Input input;
  input.target_json =
      Write(0, R"("Torch.exp.0.forward": {"input_args": [], "output": []})").dump_json;
  EXPECT_THAT(FindInOneDump(input, {})->reason, HasSubstr("holds no tensors"));
  input.target_json =
      Write(0, Call("all_reduce.0", Tensor(0, "i", {1, 2}), Tensor(0, "o", {4, 7}))).dump_json;
  const auto report = FindInOneDump(input, {});
  EXPECT_EQ(report->verdict, Verdict::kNotJudged);
  EXPECT_THAT(report->reason, HasSubstr("without it"));
  EXPECT_EQ(ScoresOf(input.target_json, {}).error().code, ErrorCode::kUnsupported);
  input.target_json = (root_ / "none.json").string();
  EXPECT_EQ(FindInOneDump(input, {}).error().code, ErrorCode::kNotFound);
}

// ---- learned constants

TEST_F(Ranks, LearnedConstantsAreReadBackAndSaid) {
  ScoreModel model;
  model.limit = 6.5;
  model.tail = 0.02;
  model.exponent = 2.5;
  model.learned = 812;
  const std::string path = (root_ / "floor.json").string();
  std::ofstream(path) << FloorJson(model, {"a", "b"});
  ScoreModel before;
  before.q = 0.05;
  const auto read = ReadFloor(path, before);
  ASSERT_TRUE(read.ok()) << read.error().ToString();
  EXPECT_EQ(read->limit, 6.5);
  EXPECT_EQ(read->tail, 0.02);
  EXPECT_EQ(read->exponent, 2.5);
  EXPECT_EQ(read->contrast, before.contrast);
  EXPECT_EQ(read->q, 0.05);
  EXPECT_EQ(read->learned, 812u);
  Input input;
  input.target_json =
      Write(0, R"("Torch.exp.0.forward": {"input_args": [], "output": []})").dump_json;
  Options options;
  EXPECT_EQ(FindInOneDump(input, options)->calibration, "on CPU");
  options.model = *read;
  const auto report = FindInOneDump(input, options);
  EXPECT_EQ(report->calibration, "on your device from 812 entries");
  EXPECT_FALSE(report->calibrated);
}

TEST_F(Ranks, AFloorFileThatIsNoneIsRefusedWithItsKey) {
  const std::string path = (root_ / "floor.json").string();
  const auto refused = [&](const std::string& text) {
    std::ofstream(path) << text;
    const auto read = ReadFloor(path, {});
    return read.ok() ? std::string("read") : read.error().ToString();
  };
  const std::string rest = R"("contrast": 4, "tail": 0.01, "exponent": 3})";
  EXPECT_EQ(refused(R"({"entries": 200, "limit": 4, )" + rest), "read");
  EXPECT_THAT(refused(R"({"entries": 200, "limit": 0.5, )" + rest),
              HasSubstr("limit is no number"));
  EXPECT_THAT(refused(R"({"entries": 200, "limit": NaN, )" + rest),
              HasSubstr("limit is no number"));
  EXPECT_THAT(refused(R"({"entries": 3, "limit": 4, )" + rest), HasSubstr("entries is no number"));
  EXPECT_THAT(refused(R"({"limit": 4, )" + rest), HasSubstr("entries is no number"));
  EXPECT_THAT(refused("[1]"), HasSubstr("entries is no number"));
  EXPECT_THAT(refused("{"), HasSubstr("floor.json"));
  EXPECT_EQ(ReadFloor((root_ / "none.json").string(), {}).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace msprobe::culprit
