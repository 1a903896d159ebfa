// What the rules say of calls that hide faults: masks, bounded gradients, precision, repeated
// calls, trained parameters.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "culprit/culprit.h"

namespace msprobe::culprit {
namespace {

struct Stats {
  double max, min, mean, norm;
};

// "torch.float32" of 2 x 8 elements unless said.
std::string Leaf(const Stats& s, const std::string& more = "",
                 const std::string& dtype = "torch.float32") {
  const auto number = [](double v) {
    char text[40];
    (void)snprintf(text, sizeof text, "%.17g", v);
    return std::string(text);
  };
  return R"({"type": "torch.Tensor", "dtype": ")" + dtype + R"(", "shape": [2, 8], "Max": )" +
         number(s.max) + R"(, "Min": )" + number(s.min) + R"(, "Mean": )" + number(s.mean) +
         R"(, "Norm": )" + number(s.norm) + R"(, "requires_grad": true)" + more + "}";
}

std::string From(const std::string& entry) {
  return R"(, "from": {"entry": ")" + entry + R"(", "leaf": "output.0"})";
}

std::string Forward(const std::string& name, const std::string& inputs, const std::string& output) {
  return "\"" + name + R"(.forward": {"input_args": [)" + inputs +
         R"(], "input_kwargs": {}, "output": [)" + output + "]}";
}

std::string Backward(const std::string& name, const std::string& input, const std::string& output) {
  return "\"" + name + R"(.backward": {"input": [)" + input + R"(], "output": [)" + output + "]}";
}

std::string Named(std::string name, int number) {
  name += std::to_string(number);
  return name;
}

std::string Linear(int number) { return Named("Functional.linear.", number); }

class Rules : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() /
            ("rules_" + std::to_string(getpid()) + "_" +
             ::testing::UnitTest::GetInstance()->current_test_info()->name());
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  // `usual`: what the parameters deviated by in the step before; negative: not known.
  Report Find(const std::string& target, const std::string& golden, const char* step = "step0",
              double usual = -1) {
    const auto write = [&](const char* side, const std::string& data) {
      const auto folder = root_ / side / step / "rank";
      std::filesystem::create_directories(folder);
      std::ofstream(folder / "dump.json")
          << R"({"task": "statistics", "level": "L1", "dump_data_dir": null, "data": {)" << data
          << "}}";
      std::ofstream(folder / "construct.json") << "{" << construct_[side[0] == 't' ? 0 : 1] << "}";
      return (folder / "dump.json").string();
    };
    Input input = {write("t", target), write("g", golden)};
    input.usual = usual;
    auto report = FindCulprit(input, {});
    EXPECT_TRUE(report.ok()) << report.error().ToString();
    return report.ok() ? *report : Report();
  }

  std::filesystem::path root_;
  std::string construct_[2];  // members of construct.json of target and golden run
};

const Stats kPlain = {2.0, -1.0, 0.1, 3.0};
const Stats kMasked = {2.5, -3.4e38, -2.1e37, 6.8e38};  // 1 of 16 elements is a mask

// The norm of the result differs by 0.2 of 3, the inputs by 1e-7 beside equal masks.
TEST_F(Rules, AResultOfMaskedScoresIsJudgedByTheValuesBesideTheMask) {
  Stats scores = kMasked, wrong = kPlain;
  scores.max += 1e-7;
  wrong.norm += 0.2;
  const Report r = Find(Forward("Functional.softmax.0", Leaf(scores), Leaf(wrong)),
                        Forward("Functional.softmax.0", Leaf(kMasked), Leaf(kPlain)));
  ASSERT_EQ(r.findings.size(), 1u);
  EXPECT_EQ(r.findings[0].entry, "Functional.softmax.0.forward");
  EXPECT_EQ(r.findings[0].rule, 13);
}

// Other numbers of masked elements, 1 and 2 of 16: the scores cannot be told apart by statistics.
TEST_F(Rules, WhereMasksDifferTheResultIsNotJudged) {
  Stats scores = kMasked, wrong = kPlain;
  scores.mean *= 2;
  scores.norm *= 1.41421356;
  wrong.norm += 0.2;
  EXPECT_TRUE(Find(Forward("Functional.softmax.0", Leaf(scores), Leaf(wrong)),
                   Forward("Functional.softmax.0", Leaf(kMasked), Leaf(kPlain)))
                  .findings.empty());
}

// e^(x + 0.15) is e^x times 1.16: a relative 1.5e-5 of scores with a mask of -1e4 explains 0.05.
TEST_F(Rules, AbsoluteErrorsOfScoresAreRelativeOnesOfTheResult) {
  const Stats scores = {2.5, -1e4, -625, 1e4};
  Stats other = scores, result = kPlain;
  other.max += 0.15;
  result.norm += 0.15;
  EXPECT_TRUE(Find(Forward("Functional.softmax.0", Leaf(other), Leaf(result)),
                   Forward("Functional.softmax.0", Leaf(scores), Leaf(kPlain)))
                  .findings.empty());
}

// A gradient of softmax has the size of the gradient that came, whatever the scores were.
TEST_F(Rules, MasksHaveNoPartInTheSizeOfAGradient) {
  const Stats came = {0.1, -0.1, 0.0, 0.3}, left = {0.01, -0.01, 0.0, 0.02};
  Stats wrong = left;
  wrong.norm *= 1.005;
  const std::string forward = Forward("Functional.softmax.0", Leaf(kMasked), Leaf(kPlain)) + ",";
  const Report r = Find(forward + Backward("Functional.softmax.0", Leaf(came), Leaf(wrong)),
                        forward + Backward("Functional.softmax.0", Leaf(came), Leaf(left)));
  ASSERT_EQ(r.findings.size(), 1u);
  EXPECT_EQ(r.findings[0].entry, "Functional.softmax.0.backward");
}

std::string Layers(const char* first, const char* second, const char* third) {
  const auto layer = [](int i, const char* dtype) {
    return Forward(Linear(i), Leaf(kPlain), Leaf(kPlain, "", dtype));
  };
  return layer(0, first) + "," + layer(1, second) + "," + layer(2, third);
}

TEST_F(Rules, OneLayerOutsideAutocastIsAnArgument) {
  const char *b = "torch.bfloat16", *f = "torch.float32";
  const Report r = Find(Layers(b, f, b), Layers(b, b, b));
  ASSERT_EQ(r.findings.size(), 1u);
  EXPECT_EQ(r.findings[0].kind, FindingKind::kArgument);
  EXPECT_EQ(r.findings[0].entry, "Functional.linear.1.forward");
  EXPECT_EQ(r.findings[0].leaf, "output.0");
  // The whole run in another precision is none.
  EXPECT_TRUE(Find(Layers(f, f, f), Layers(b, b, b)).findings.empty());
}

// A cast that one run makes alone, before the second of three layers: that layer is told, on
// whichever side it is. Where all layers are cast the run is one in another precision.
TEST_F(Rules, ACastThatChangesTheTypeOfOneLayerIsAnArgument) {
  const char *b = "torch.bfloat16", *f = "torch.float32";
  const auto run = [&](const char* casts) {
    std::string data;
    for (int i = 0; i < 3; ++i) {
      const bool cast = casts[i] == 'c';
      const std::string relu = Named("Functional.relu.", i), to = Named("Tensor.float.", i);
      if (i > 0) data += ",";
      data += Forward(relu, Leaf(kPlain, "", b), Leaf(kPlain, "", b));
      if (cast) {
        data += ",";
        data += Forward(to, Leaf(kPlain, From(relu + ".forward"), b), Leaf(kPlain, "", f));
      }
      const char* type = cast ? f : b;
      const std::string from = From((cast ? to : relu) + ".forward");
      data += ",";
      data += Forward(Linear(i), Leaf(kPlain, from, type), Leaf(kPlain, "", type));
    }
    return data;
  };
  for (const bool more : {true, false}) {
    const Report r = Find(run(more ? "-c-" : "---"), run(more ? "---" : "-c-"));
    ASSERT_EQ(r.findings.size(), 1u) << more;
    EXPECT_EQ(r.findings[0].entry, "Functional.linear.1.forward");
    EXPECT_EQ(r.findings[0].kind, FindingKind::kArgument);
    EXPECT_EQ(r.findings[0].rule, 3);
    EXPECT_NE(r.findings[0].sentence.find("because of Tensor.float.1"), std::string::npos)
        << r.findings[0].sentence;
    std::filesystem::remove_all(root_);
  }
  EXPECT_TRUE(Find(run("ccc"), run("---")).findings.empty());
}

// tanh is called twice with equal results; then the gradient of exp, a sum that nothing recorded
// is, differs.
TEST_F(Rules, AGradientThatACallMoreAddsToIsStructure) {
  const std::string exp = Forward("Torch.exp.0", Leaf(kPlain), Leaf({2.0, -1.0, 0.2, 3.5})) + ",";
  const std::string in = Leaf({2.0, -1.0, 0.2, 3.5}, From("Torch.exp.0.forward"));
  const std::string more = Forward("Torch.sin.0", in, Leaf({0.5, -0.5, 0.02, 0.7})) + ",";
  const std::string tanh = Forward("Torch.tanh.0", in, Leaf({0.9, -0.7, 0.1, 2.0})) + ",";
  const auto gradient = [](double norm) {
    return Backward("Torch.exp.0", Leaf({0.1, -0.1, 0.01, norm}), Leaf({0.2, -0.2, 0.02, norm}));
  };
  const Report r = Find(exp + more + tanh + gradient(0.4), exp + tanh + gradient(0.3));
  ASSERT_FALSE(r.findings.empty());
  EXPECT_EQ(r.findings[0].kind, FindingKind::kStructure);
  EXPECT_EQ(r.findings[0].entry, "Torch.sin.0.forward");
}

// Eight weights; `first` and the others deviate by so much of their norm 3.
std::string Weights(double first, double others) {
  std::string out;
  for (int i = 0; i < 8; ++i) {
    Stats weight = kPlain;
    weight.mean += i;  // no two alike
    weight.norm += 3 * (i == 0 ? first : others);
    std::string inputs = Leaf({1, -1, 0, 2}, From("Torch.exp.0.forward"));
    inputs += ",";
    inputs += Leaf(weight);
    if (i > 0) out += ",";
    out += Forward(Linear(i), inputs, Leaf({1, -1, 0, 2}));
  }
  return out;
}

TEST_F(Rules, AWeightThatDeviatesAsNoOtherIsNoNoiseOfTheUpdate) {
  const std::string golden = Weights(0, 0);
  // All weights deviate alike after updates: rounding that Adam has made larger.
  EXPECT_TRUE(Find(Weights(2e-3, 1e-3), golden, "step2").findings.empty());
  const Report r = Find(Weights(2e-3, 1e-6), golden, "step2");
  ASSERT_FALSE(r.findings.empty());
  EXPECT_EQ(r.findings[0].kind, FindingKind::kState);
  EXPECT_EQ(r.findings[0].entry, "Functional.linear.0.forward");
  // Alone, but as little as noise may be.
  EXPECT_TRUE(Find(Weights(4e-4, 1e-6), golden, "step2").findings.empty());
}

// All weights deviate by 1e-3, of which statistics show as much: more than the 0.01 sqrt(2e-5) that
// rounding turns signs for, and more than a hundred times what they did in the step before.
TEST_F(Rules, WeightsThatMoveApartAllAtOnceWereUpdatedOtherwise) {
  const std::string golden = Weights(0, 0), target = Weights(1e-3, 1e-3);
  const Report r = Find(target, golden, "step2", 1e-8);
  ASSERT_EQ(r.findings.size(), 1u);  // one for all of them
  EXPECT_EQ(r.findings[0].kind, FindingKind::kState);
  EXPECT_EQ(r.findings[0].entry, "Functional.linear.0.forward");
  EXPECT_NE(r.findings[0].sentence.find("and so do most parameters"), std::string::npos);
  EXPECT_NEAR(r.usual, 1e-3, 1e-6);
  // They had drifted apart before; nobody knows of the step before; too little to tell.
  EXPECT_TRUE(Find(target, golden, "step2", 2e-5).findings.empty());
  EXPECT_TRUE(Find(target, golden, "step2").findings.empty());
  EXPECT_TRUE(Find(Weights(3e-5, 3e-5), golden, "step2", 1e-8).findings.empty());
}

std::string Module(const std::string& input, const std::string& output) {
  return R"("Module.block.Block.forward.0": {"input_args": [)" + input +
         R"(], "input_kwargs": {}, "output": [)" + output + "]}";
}

// The module's own result differs by a tenth from that of its last call, which is as in the golden
// run: something wrote into it between the two.
TEST_F(Rules, WhatAModuleReturnsIsWhatACallInsideMade) {
  const Stats changed = {2.2, -1.1, 0.11, 3.3};
  const auto run = [&](const Stats& returned) {
    return Forward(Linear(0), Leaf({1, -1, 0, 2}), Leaf(kPlain)) + "," +
           Module(Leaf({1, -1, 0, 2}), Leaf(returned));
  };
  construct_[0] = construct_[1] = R"("Functional.linear.0.forward": "Module.block.Block.forward.0",
    "Module.block.Block.forward.0": null)";
  const Report r = Find(run(changed), run(kPlain));
  ASSERT_EQ(r.findings.size(), 1u);
  EXPECT_EQ(r.findings[0].entry, "Module.block.Block.forward.0");
  EXPECT_EQ(r.findings[0].kind, FindingKind::kGlue);
  EXPECT_EQ(r.findings[0].rule, 10);
  EXPECT_TRUE(Find(run(kPlain), run(kPlain)).findings.empty());
}

// A module that makes exp, tanh instead of tanh and returns the same: another way. Where it returns
// something else the call more is told.
TEST_F(Rules, OtherCallsInAModuleThatReturnsTheSameAreAnotherWay) {
  const Stats input = {1, -1, 0, 2}, between = {3, 0.1, 1, 5}, changed = {2.2, -1.1, 0.11, 3.3};
  const auto golden =
      Forward("Torch.tanh.0", Leaf(input), Leaf(kPlain)) + "," + Module(Leaf(input), Leaf(kPlain));
  const auto target = [&](const Stats& result) {
    return Forward("Torch.exp.0", Leaf(input), Leaf(between)) + "," +
           Forward("Torch.tanh.0", Leaf(between, From("Torch.exp.0.forward")), Leaf(result)) + "," +
           Module(Leaf(input), Leaf(result));
  };
  construct_[1] = R"("Torch.tanh.0.forward": "Module.block.Block.forward.0",
    "Module.block.Block.forward.0": null)";
  construct_[0] = construct_[1] + R"(, "Torch.exp.0.forward": "Module.block.Block.forward.0")";
  EXPECT_TRUE(Find(target(kPlain), golden).findings.empty());
  const Report r = Find(target(changed), golden);
  ASSERT_FALSE(r.findings.empty());
  EXPECT_EQ(r.findings[0].kind, FindingKind::kStructure);
  EXPECT_EQ(r.findings[0].entry, "Torch.exp.0.forward");
}

// The golden run adds in place: its gradient of the linear layer is that of the addition.
TEST_F(Rules, AGradientThatIsMissingWhereTheResultIsWrittenIntoIsNone) {
  const auto run = [&](const std::string& add, bool gradient) {
    const std::string both =
        Leaf(kPlain, From("Functional.linear.0.forward")) + "," + Leaf({1, -1, 0, 2});
    std::string data = Forward(Linear(0), Leaf({1, -1, 0, 2}), Leaf(kPlain)) + "," +
                       Forward(add, both, Leaf({3, -2, 0.1, 4})) + "," +
                       Backward("Torch.exp.0", Leaf({1, -1, 0, 2}), Leaf({1, -1, 0, 2}));
    if (gradient) {
      data += ",";
      data += Backward(Linear(0), Leaf({1, -1, 0, 2}), Leaf({1, -1, 0, 2}));
    }
    return data;
  };
  EXPECT_TRUE(Find(run("Tensor.add.0", true), run("Tensor.add_.0", false)).findings.empty());
  const Report r = Find(run("Tensor.add.0", true), run("Tensor.add.0", false));
  ASSERT_EQ(r.findings.size(), 1u);
  EXPECT_EQ(r.findings[0].entry, "Functional.linear.0.backward");
}

// After a finding only parameters are told by themselves; what indexing made of a wrong result is
// none.
TEST_F(Rules, WhatUnrecordedCodeMadeIsAConsequence) {
  const auto run = [](double mean, const char* more) {
    Stats result = kPlain, piece = kPlain;
    result.mean = mean;
    piece.mean = 5 + mean;
    return Forward("Functional.linear.0", Leaf({1, -1, 0, 2}), Leaf(result)) + "," +
           Forward("Torch.tanh.0", Leaf(piece, more), Leaf(piece));
  };
  EXPECT_EQ(Find(run(0.3, ""), run(0.1, "")).findings.size(), 2u);
  const Report r = Find(run(0.3, R"(, "derived": true)"), run(0.1, R"(, "derived": true)"));
  ASSERT_EQ(r.findings.size(), 1u);
  EXPECT_EQ(r.findings[0].entry, "Functional.linear.0.forward");
  EXPECT_EQ(r.consequences, 1u);
}

}  // namespace
}  // namespace msprobe::culprit
