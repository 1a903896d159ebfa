#include "culprit/culprit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "culprit/align.h"
#include "culprit/run.h"
#include "culprit/score_model.h"

namespace msprobe::culprit {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

// ---- a dump in a folder of its own

class Dumps : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() /
            ("culprit_" + std::to_string(getpid()) + "_" +
             ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::string Write(const std::string& name, const std::string& data,
                    const std::string& construct = "{}") {
    const auto folder = root_ / name;
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "dump.json")
        << R"({"task": "statistics", "level": "L1", "dump_data_dir": null, "data": {)" << data
        << "}}";
    std::ofstream(folder / "construct.json") << construct;
    return (folder / "dump.json").string();
  }

  static Report Find(const std::string& target, const std::string& golden) {
    auto report = FindCulprit({target, golden}, {});
    EXPECT_TRUE(report.ok()) << report.error().ToString();
    return report.ok() ? *report : Report();
  }

  std::filesystem::path root_;
};

// A tensor of 4 elements: largest 2, smallest -1, mean m, norm n.
std::string Leaf4(double mean, double norm, const std::string& more = "") {
  return R"({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4], "Max": 2.0, "Min": -1.0, "Mean": )" +
         std::to_string(mean) + R"(, "Norm": )" + std::to_string(norm) +
         R"(, "requires_grad": false)" + more + "}";
}

std::string From(const std::string& entry) {
  return R"(, "from": {"entry": ")" + entry + R"(", "leaf": "output.0"})";
}

std::string Call(const std::string& name, const std::string& inputs, const std::string& output,
                 const std::string& kwargs = "") {
  return "\"" + name + R"(.forward": {"input_args": [)" + inputs + R"(], "input_kwargs": {)" +
         kwargs + R"(}, "output": [)" + output + "]}";
}

// Three calls in a row, each taking the result of the one before.
std::string Chain(double first, double second, double third, const std::string& eps = "1e-05") {
  return Call("Torch.exp.0", Leaf4(0.5, 3.0), Leaf4(first, 4.0)) + "," +
         Call("Functional.layer_norm.0", Leaf4(first, 4.0, From("Torch.exp.0.forward")),
              Leaf4(second, 5.0), R"("eps": {"type": "float", "value": )" + eps + "}") +
         "," +
         Call("Torch.tanh.0", Leaf4(second, 5.0, From("Functional.layer_norm.0.forward")),
              Leaf4(third, 6.0));
}

TEST_F(Dumps, EqualRunsHaveNoCulprit) {
  const Report r = Find(Write("t", Chain(0.1, 0.2, 0.3)), Write("g", Chain(0.1, 0.2, 0.3)));
  EXPECT_EQ(r.verdict, Verdict::kNone);
  EXPECT_TRUE(r.findings.empty());
  EXPECT_EQ(r.judged, 3u);
  EXPECT_EQ(r.consequences, 0u);
}

TEST_F(Dumps, AnArgumentComesBeforeTheNumbersThatItChanges) {
  const Report r =
      Find(Write("t", Chain(0.1, 0.4, 0.9, "0.001")), Write("g", Chain(0.1, 0.2, 0.3)));
  ASSERT_EQ(r.verdict, Verdict::kFound);
  const Finding& f = r.findings.front();
  EXPECT_EQ(f.kind, FindingKind::kArgument);
  EXPECT_EQ(f.rule, 3);
  EXPECT_EQ(f.entry, "Functional.layer_norm.0.forward");
  EXPECT_EQ(f.golden_entry, "Functional.layer_norm.0.forward");
  EXPECT_EQ(f.leaf, "input.eps");
  EXPECT_THAT(f.numbers, ElementsAre(Pair("value", 0.001), Pair("golden_value", 1e-05)));
  EXPECT_EQ(f.sentence,
            "Functional.layer_norm.0.forward was called with input.eps = 0.001, the golden run "
            "with 1e-05.");
}

// Means differ by 0.2 over 4 elements: a distance of at least 0.2 * sqrt(4) = 0.4, of a norm of 5.
TEST_F(Dumps, AResultThatItsInputsDoNotExplainIsNamedAndTheNextCallIsNot) {
  const Report r = Find(Write("t", Chain(0.1, 0.4, 0.9)), Write("g", Chain(0.1, 0.2, 0.3)));
  ASSERT_EQ(r.findings.size(), 1u);
  const Finding& f = r.findings.front();
  EXPECT_EQ(f.kind, FindingKind::kOutput);
  EXPECT_EQ(f.rule, 13);
  EXPECT_EQ(f.entry, "Functional.layer_norm.0.forward");
  ASSERT_EQ(f.numbers.front().first, "deviation");
  EXPECT_NEAR(f.numbers.front().second, 0.08, 1e-12);
  EXPECT_EQ(r.mode, Mode::kStatistics);
}

TEST_F(Dumps, AnInputOfNoRecordedCallIsStateThatDiffers) {
  const std::string g = Call("Torch.exp.0", Leaf4(0.5, 3.0), Leaf4(0.1, 4.0));
  const std::string t = Call("Torch.exp.0", Leaf4(0.7, 3.0), Leaf4(0.2, 4.0));
  const Report r = Find(Write("t", t), Write("g", g));
  ASSERT_EQ(r.findings.size(), 1u);
  EXPECT_EQ(r.findings.front().kind, FindingKind::kState);
  EXPECT_EQ(r.findings.front().rule, 4);
  // |0.7 - 0.5| * sqrt(4) / 3
  EXPECT_NEAR(r.findings.front().numbers.front().second, 0.4 / 3, 1e-12);
}

TEST_F(Dumps, WhatACallOverwritesIsNoState) {
  const auto run = [](const char* api, double before) {
    return Call(std::string("Tensor.") + api + ".0", Leaf4(before, 3.0), Leaf4(0.1, 4.0));
  };
  EXPECT_TRUE(
      Find(Write("t", run("normal_", 0.7)), Write("g", run("normal_", 0.5))).findings.empty());
  EXPECT_EQ(Find(Write("t", run("mul_", 0.7)), Write("g", run("mul_", 0.5))).findings.size(), 1u);
}

// The target's cast returns its argument: the gradient recorded for it is that of another call.
TEST_F(Dumps, AGradientOfACastThatHandedItsInputOnIsNotCompared) {
  const auto run = [](const std::string& dtype, double gradient) {
    std::string input = Leaf4(0.5, 3.0);
    input.replace(input.find("float32"), 7, dtype);
    const std::string leaf = "[" + Leaf4(gradient, 2.0) + "]";
    return Call("Tensor.to.0", input, Leaf4(0.5, 3.0)) + R"(, "Tensor.to.0.backward": {"input": )" +
           leaf + R"(, "output": )" + leaf + "}";
  };
  const auto findings = [&](const char* golden_dtype) {
    return Find(Write("t", run("float32", 0.7)), Write("g", run(golden_dtype, 0.1)))
        .findings.size();
  };
  EXPECT_EQ(findings("float64"), 0u);
  EXPECT_EQ(findings("float32"), 1u);
}

TEST_F(Dumps, AnInputOfAnotherCallIsWired) {
  const auto run = [](const std::string& source, double value) {
    return Call("Torch.exp.0", Leaf4(0.5, 3.0), Leaf4(0.1, 4.0)) + "," +
           Call("Torch.sin.0", Leaf4(0.5, 3.0), Leaf4(0.6, 4.0)) + "," +
           Call("Torch.tanh.0", Leaf4(value, 4.0, From(source)), Leaf4(0.0, 1.0));
  };
  const Report r = Find(Write("t", run("Torch.sin.0.forward", 0.6)),
                        Write("g", run("Torch.exp.0.forward", 0.1)));
  ASSERT_FALSE(r.findings.empty());
  EXPECT_EQ(r.findings.front().kind, FindingKind::kWired);
  EXPECT_EQ(r.findings.front().entry, "Torch.tanh.0.forward");
  EXPECT_THAT(
      r.findings.front().sentence,
      HasSubstr(
          "which comes from Torch.sin.0.forward, in the golden run from Torch.exp.0.forward"));
}

TEST_F(Dumps, OneCallMoreIsNamedAndTheShiftDoesNotSpread) {
  const std::string golden =
      Call("Torch.exp.0", Leaf4(0.5, 3.0), Leaf4(0.1, 4.0)) + "," +
      Call("Torch.tanh.0", Leaf4(0.1, 4.0, From("Torch.exp.0.forward")), Leaf4(0.2, 4.0));
  const std::string target =
      Call("Torch.exp.0", Leaf4(0.5, 3.0), Leaf4(0.1, 4.0)) + "," +
      Call("Torch.exp.1", Leaf4(0.1, 4.0, From("Torch.exp.0.forward")), Leaf4(0.9, 4.0)) + "," +
      Call("Torch.tanh.0", Leaf4(0.9, 4.0, From("Torch.exp.1.forward")), Leaf4(0.5, 4.0));
  const Report more = Find(Write("t", target), Write("g", golden));
  ASSERT_FALSE(more.findings.empty());
  EXPECT_EQ(more.findings.front().kind, FindingKind::kStructure);
  EXPECT_EQ(more.findings.front().entry, "Torch.exp.1.forward");
  const Report less = Find(Write("g2", golden), Write("t2", target));
  ASSERT_FALSE(less.findings.empty());
  EXPECT_EQ(less.findings.front().kind, FindingKind::kStructure);
  EXPECT_EQ(less.findings.front().golden_entry, "Torch.exp.1.forward");
}

TEST_F(Dumps, OtherInputDataIsNotJudged) {
  const auto run = [](int n) {
    return "\"Torch.exp.0.forward\": {\"input_args\": [{\"type\": \"torch.Tensor\", \"dtype\": "
           "\"torch.float32\", "
           "\"shape\": [" +
           std::to_string(n) +
           "], \"Max\": 1.0, \"Min\": 0.0, \"Mean\": 0.5, \"Norm\": 1.0, \"requires_grad\": "
           "false}], "
           "\"input_kwargs\": {}, \"output\": []}";
  };
  const Report r = Find(Write("t", run(4)), Write("g", run(5)));
  EXPECT_EQ(r.verdict, Verdict::kNotJudged);
  EXPECT_THAT(r.reason, HasSubstr("different input data"));
  EXPECT_TRUE(r.findings.empty());
}

TEST_F(Dumps, DumpsWithoutACommonCallAreNotJudged) {
  const Report r = Find(Write("t", Call("Torch.exp.0", "", Leaf4(0, 1))),
                        Write("g", Call("Torch.sin.0", "", Leaf4(0, 1))));
  EXPECT_EQ(r.verdict, Verdict::kNotJudged);
  EXPECT_EQ(r.reason, "no call of one dump is a call of the other");
}

TEST_F(Dumps, StatisticsThatAreNoNumbersAndOddLeavesRaiseNothingWhenBothSidesAgree) {
  const std::string odd =
      R"("Torch.exp.0.forward": {"input_args": [null, 3, {"type": "torch.Tensor", "dtype": "torch.float32", )"
      R"("shape": ["x"]}, {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": NaN, "Min": NaN, )"
      R"("Mean": NaN, "Norm": NaN}], "input_kwargs": 7, "output": [[{"type": "odd"}]]}, "x": 5, "Module..": {})";
  const Report r = Find(Write("t", odd), Write("g", odd));
  EXPECT_TRUE(r.findings.empty());
}

TEST_F(Dumps, AMissingFileIsAnErrorWithItsPath) {
  const auto r = FindCulprit({(root_ / "none.json").string(), (root_ / "none.json").string()}, {});
  ASSERT_FALSE(r.ok());
  EXPECT_THAT(r.error().ToString(), HasSubstr("none.json"));
}

// ---- alignment

TEST(Diff, TheLongestCommonSubsequenceOfShortTexts) {
  // ABCABBA and CBABAC of Myers 1986: common subsequences have four letters.
  const std::vector<uint64_t> a = {1, 2, 3, 1, 2, 2, 1};
  const std::vector<uint64_t> b = {3, 2, 1, 2, 1, 3};
  const auto pairs = Pairs(a, b);
  ASSERT_EQ(pairs.size(), 4u);
  for (size_t i = 0; i < pairs.size(); ++i) {
    EXPECT_EQ(a[pairs[i].first], b[pairs[i].second]);
  }
  EXPECT_TRUE(Pairs({}, b).empty());
  EXPECT_THAT(Pairs({7, 8, 9}, {7, 9}), ElementsAre(Pair(0, 0), Pair(2, 1)));
}

TEST(Diff, AHundredThousandCallsWithoutAnythingInCommonEnd) {
  constexpr uint32_t kCalls = 100'000;
  std::vector<uint64_t> a;
  std::vector<uint64_t> b;
  for (uint32_t i = 0; i < kCalls; ++i) {
    a.push_back(i % 7);
    b.push_back(100 + i % 5);
  }
  EXPECT_TRUE(Pairs(a, b).empty());
  // The same few tokens in another order: pairs by occurrence, ascending on both sides.
  for (uint32_t i = 0; i < kCalls; ++i) b[i] = (i * i) % 7;
  const auto pairs = Pairs(a, b);
  EXPECT_GT(pairs.size(), 1000u);
  for (size_t i = 1; i < pairs.size(); ++i) {
    ASSERT_GT(pairs[i].first, pairs[i - 1].first);
    ASSERT_GT(pairs[i].second, pairs[i - 1].second);
  }
}

TEST_F(Dumps, InARunOfEqualCallsTheOneWithOtherInputsIsTheOneTooMany) {
  const auto call = [](int n, double mean) {
    return Call("Torch.exp." + std::to_string(n), Leaf4(mean, 3.0), Leaf4(mean / 2, 3.0));
  };
  const std::string t =
      Write("t", call(0, 0.1) + "," + call(1, 0.7) + "," + call(2, 0.2) + "," + call(3, 0.3));
  const std::string g = Write("g", call(0, 0.1) + "," + call(1, 0.2) + "," + call(2, 0.3));
  auto target = ReadRun(t);
  auto golden = ReadRun(g);
  ASSERT_TRUE(target.ok() && golden.ok());
  FillKeys(**target, **golden);
  const Distances distances(**target, **golden);
  const Alignment alignment = Align(**target, **golden, distances);
  EXPECT_THAT(alignment.of_target, ElementsAre(0u, kNowhere, 1u, 2u));
  ASSERT_EQ(alignment.groups.size(), 1u);
  EXPECT_THAT(alignment.groups[0].target, ElementsAre(1u));
}

// ---- names

TEST(Names, PartsOfEntries) {
  const NameParts api = PartsOf("Functional.layer_norm.12.backward");
  EXPECT_EQ(api.kind, Kind::kApiBackward);
  EXPECT_EQ(api.base, "Functional.layer_norm.12");
  EXPECT_EQ(api.api, "Functional.layer_norm");
  EXPECT_EQ(api.last, "layer_norm");
  const NameParts module = PartsOf("Module.a.0.Linear.forward.3");
  EXPECT_EQ(module.kind, Kind::kModuleForward);
  EXPECT_EQ(module.api, "Module.a.0.Linear");
  EXPECT_EQ(PartsOf("Module.a.Linear.parameters_grad.0").kind, Kind::kParameterGrad);
  EXPECT_EQ(PartsOf("Module.a.Linear.parameters_grad").kind, Kind::kParameterGrad);
  EXPECT_EQ(PartsOf("odd").kind, Kind::kOther);
  EXPECT_EQ(PartsOf("").kind, Kind::kOther);
}

TEST(Names, TheFirstFrameThatIsNoLibrarys) {
  EXPECT_EQ(
      CodeOf({"File /venv/lib/python3.11/site-packages/torch/nn/functional.py, line 9, in f, \n x",
              "File /code/model.py, line 37, in forward, \n y = f(x)"}),
      "/code/model.py:37");
  EXPECT_EQ(CodeOf({"garbage"}), "");
}

// ---- scores

TEST(ScoreModel, PValuesAreThoseOfTheFormulaAndMonotone) {
  const ScoreModel model;
  EXPECT_EQ(PValue(model, 0.5), 1);
  EXPECT_EQ(PValue(model, 1), 1);
  EXPECT_EQ(PValue(model, std::numeric_limits<double>::quiet_NaN()), 1);
  EXPECT_NEAR(PValue(model, 10), 0.0036 * 3.388441561392026e-4, 1e-15);  // 10^-3.47
  EXPECT_EQ(PValue(model, std::numeric_limits<double>::infinity()), 0);
  double last = 1;
  for (double s = 1.01; s < 1e6; s *= 1.5) {
    EXPECT_LT(PValue(model, s), last);
    last = PValue(model, s);
  }
}

// The example of Benjamini & Hochberg 1995, table 1: of 15 p-values at q = 0.05 four are
// discoveries.
TEST(ScoreModel, DiscoveriesOfBenjaminiAndHochberg) {
  ScoreModel model;
  model.q = 0.05;
  const std::vector<double> p = {0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344,
                                 0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0000};
  EXPECT_EQ(DiscoveryLimit(model, p, p.size()), 0.0095);
  EXPECT_LT(DiscoveryLimit(model, {1, 1, 1}, 3), 0);
  EXPECT_LT(DiscoveryLimit(model, {}, 0), 0);
}

// culprit.md 7: a single bad entry is found from s = 5.4 among 10^3 and 10.6 among 10^4 at q =
// 0.01.
TEST(ScoreModel, ASingleBadEntryIsFoundFromTheStatedScoreOn) {
  ScoreModel model;
  model.q = 0.01;
  EXPECT_GT(DiscoveryLimit(model, {PValue(model, 5.5)}, 1000), 0);
  EXPECT_LT(DiscoveryLimit(model, {PValue(model, 5.3)}, 1000), 0);
  EXPECT_GT(DiscoveryLimit(model, {PValue(model, 10.7)}, 10'000), 0);
  EXPECT_LT(DiscoveryLimit(model, {PValue(model, 10.4)}, 10'000), 0);
}

TEST(ScoreModel, KappaOfTheFamilies) {
  EXPECT_DOUBLE_EQ(Kappa("linear", 64, false), 5);      // 1 + sqrt(64) / 2
  EXPECT_DOUBLE_EQ(Kappa("conv2d", 64, false), 9);      // 1 + sqrt(64)
  EXPECT_DOUBLE_EQ(Kappa("layer_norm", 64, false), 4);  // 2 + sqrt(64) / 4
  EXPECT_DOUBLE_EQ(Kappa("softmax", 64, false), 4);
  EXPECT_DOUBLE_EQ(Kappa("gelu", 1, false), 1);
  EXPECT_DOUBLE_EQ(Kappa("sum", 256, false), 3);      // 1 + log2(256) / 4
  EXPECT_DOUBLE_EQ(Kappa("cumsum", 256, false), 24);  // 8 of that
  EXPECT_DOUBLE_EQ(Kappa("conv_transpose2d", 64, true), 72);
  EXPECT_DOUBLE_EQ(ParameterGradKappa(16), 24);  // 8 (1 + 2)
}

TEST(ScoreModel, LearnedFromCleanScores) {
  std::vector<double> scores(1000, 0.5);
  // 20 scores of e^(1/2): Hill's index is 20 / (20 / 2) = 2, their share 0.02.
  for (int i = 0; i < 20; ++i) scores[static_cast<size_t>(i)] = std::exp(0.5);
  scores[0] = std::exp(0.5);
  const auto model = LearnFloor(scores, {});
  ASSERT_TRUE(model.ok());
  EXPECT_NEAR(model->exponent, 2, 1e-12);
  EXPECT_NEAR(model->tail, 0.02, 1e-12);
  EXPECT_EQ(model->limit, 4);
  scores[1] = 10;
  EXPECT_NEAR(LearnFloor(scores, {})->limit, 11.5, 1e-12);
  EXPECT_EQ(LearnFloor({1, 2}, {}).error().code, ErrorCode::kNothingToDo);
}

TEST(Jobs, ScoresAreReadAndOddAnswersAreErrors) {
  const auto scores = ReadScores(
      R"({"a.0.forward": {"leaves": [{"leaf": "output.0", "score": Infinity, "rms": 1.5}]}, "b.0.forward": {"reason": "random"}})");
  ASSERT_TRUE(scores.ok());
  EXPECT_TRUE(std::isinf(scores->entries.at("a.0.forward").Worst()));
  EXPECT_EQ(scores->entries.at("b.0.forward").reason, "random");
  EXPECT_EQ(scores->entries.at("b.0.forward").WorstLeaf(), nullptr);
  EXPECT_FALSE(ReadScores("[]").ok());
  EXPECT_FALSE(ReadScores("{").ok());
}

}  // namespace
}  // namespace msprobe::culprit
