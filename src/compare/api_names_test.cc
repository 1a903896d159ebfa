// -am: functions of a MindSpore target under their names of PyTorch.
#include "compare/api_names.h"

#include <gmock/gmock.h>

#include "compare/match.h"
#include "compare/test_dump.h"

namespace msprobe::compare {
namespace {

class ApiMapping : public DumpTest {
 protected:
  void WriteSide(const std::string& side, const std::string& framework, const std::string& data) {
    std::ofstream(root_ + side + "/dump.json")
        << R"({"task": "statistics", "level": "L1", "framework": ")" << framework
        << R"(", "data": {)" << data << "}}";
  }
  static std::string S(double v) { return Stats(v, -v, v / 2, v * 2); }
  std::string GoldenOf(const Comparison& c, const std::string& target) {
    const Row* row = FindRow(c, target);
    return row != nullptr && row->golden != nullptr ? std::string(row->golden->name) : "";
  }
};

config::ApiPair Pair(std::string target, std::string golden) {
  config::ApiPair pair;
  pair.target = std::move(target);
  pair.golden = std::move(golden);
  return pair;
}

TEST_F(ApiMapping, FileRenamesFunctionsAndPairsTheirArguments) {
  WriteSide("target", "mindspore",
            Call("Mint.sub.0.forward", S(1) + "," + S(2), S(3)) + "," +
                Call("Functional.abs.0.forward", S(4), S(5)));
  WriteSide("golden", "pytorch",
            Call("Torch.rsub.0.forward", S(2) + "," + S(1), S(3)) + "," +
                Call("Torch.abs.0.forward", S(4), S(5)));
  Options options;
  config::ApiPair sub = Pair("Mint.sub", "Torch.rsub");
  sub.arguments = config::PlaceMap{{"0", "1"}, {"1", "0"}};
  options.api_mapping = config::ApiMap{sub, Pair("Functional.abs", "Torch.abs")};
  const auto result = Compare(input(), options);
  ASSERT_TRUE(result.ok()) << result.error().ToString();
  EXPECT_EQ(GoldenOf(*result, "Mint.sub.0.forward.input.0"), "Torch.rsub.0.forward.input.1");
  EXPECT_EQ(GoldenOf(*result, "Mint.sub.0.forward.input.1"), "Torch.rsub.0.forward.input.0");
  EXPECT_EQ(GoldenOf(*result, "Mint.sub.0.forward.output.0"), "Torch.rsub.0.forward.output.0");
  EXPECT_EQ(GoldenOf(*result, "Functional.abs.0.forward.output.0"), "Torch.abs.0.forward.output.0");
  EXPECT_EQ(result->counts.pass, 5u);
  EXPECT_EQ(result->counts.total, 5u);
}

TEST_F(ApiMapping, PlacesThatThePairDoesNotListStayAlone) {
  WriteSide("target", "mindspore", Call("Mint.sub.0.forward", S(1) + "," + S(2), S(3)));
  WriteSide("golden", "pytorch", Call("Torch.sub.0.forward", S(1) + "," + S(2), S(3)));
  Options options;
  config::ApiPair sub = Pair("Mint.sub", "Torch.sub");
  sub.arguments = config::PlaceMap{{"0"}, {"0"}};
  options.api_mapping = config::ApiMap{sub};
  const auto result = Compare(input(), options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(GoldenOf(*result, "Mint.sub.0.forward.input.0"), "Torch.sub.0.forward.input.0");
  EXPECT_EQ(GoldenOf(*result, "Mint.sub.0.forward.input.1"), "");
  EXPECT_EQ(result->counts.unmatched, 2u);  // the second argument of either side
}

// Two functions that lead to one count their calls apart; the golden function counts them together.
TEST_F(ApiMapping, CallsOfSeveralFunctionsPairInOrder) {
  WriteSide("target", "mindspore",
            Call("Mint.add.0.forward", S(1), S(1)) + "," +
                Call("Functional.add.0.forward", S(2), S(2)) + "," +
                Call("Mint.add.1.forward", S(3), S(3)));
  WriteSide("golden", "pytorch",
            Call("Torch.add.0.forward", S(1), S(1)) + "," +
                Call("Torch.add.1.forward", S(2), S(2)) + "," +
                Call("Torch.add.2.forward", S(3), S(3)));
  Options options;
  options.api_mapping =
      config::ApiMap{Pair("Mint.add", "Torch.add"), Pair("Functional.add", "Torch.add")};
  const auto result = Compare(input(), options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(GoldenOf(*result, "Functional.add.0.forward.output.0"), "Torch.add.1.forward.output.0");
  EXPECT_EQ(GoldenOf(*result, "Mint.add.1.forward.output.0"), "Torch.add.2.forward.output.0");
  EXPECT_EQ(result->counts.pass, 6u);
}

TEST_F(ApiMapping, ClassesOfCellsRenameTheirParametersAndGradients) {
  const auto module = [](const std::string& base, const std::string& weight) {
    return "\"" + base + R"(.forward.0": {"input_args": [)" + S(1) + R"(], "parameters": {")" +
           weight + R"(": )" + S(2) + R"(}, "output": [)" + S(3) + "]}, \"" + base +
           R"(.parameters_grad.0": {")" + weight + R"(": [)" + S(4) + "]}";
  };
  WriteSide("target", "mindspore", module("Cell.net.norm.LayerNorm", "gamma"));
  WriteSide("golden", "pytorch", module("Module.net.norm.LayerNorm", "weight"));
  Options options;
  config::ApiPair norm = Pair("LayerNorm", "LayerNorm");
  norm.parameters = config::PlaceMap{{"gamma", "beta"}, {"weight", "bias"}};
  options.api_mapping = config::ApiMap{norm};
  const auto result = Compare(input(), options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(GoldenOf(*result, "Cell.net.norm.LayerNorm.forward.0.parameters.gamma"),
            "Module.net.norm.LayerNorm.forward.0.parameters.weight");
  EXPECT_EQ(GoldenOf(*result, "Cell.net.norm.LayerNorm.parameters_grad.0.gamma"),
            "Module.net.norm.LayerNorm.parameters_grad.0.weight");
  EXPECT_EQ(result->counts.pass, 4u);
}

TEST_F(ApiMapping, WithoutAFileFunctionsOfLikeNamesMeet) {
  WriteSide("target", "mindspore",
            Call("Mint.add.0.forward", S(1), S(1)) + "," +
                Call("MintFunctional.layer_norm.0.forward", S(2), S(2)) + "," +
                Call("Primitive.MatMul.0.forward", S(3), S(3)) + "," +
                Call("Tensor.add_.0.forward", S(4), S(4)));
  WriteSide("golden", "pytorch",
            Call("Tensor.add.0.forward", S(9), S(9)) + "," +
                Call("Torch.add.0.forward", S(1), S(1)) + "," +
                Call("Functional.layer_norm.0.forward", S(2), S(2)) + "," +
                Call("Torch.matmul.0.forward", S(3), S(3)) + "," +
                Call("Tensor.add_.0.forward", S(4), S(4)));
  Options options;
  options.api_mapping_flag = true;
  const auto result = Compare(input(), options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(GoldenOf(*result, "Mint.add.0.forward.input.0"), "Torch.add.0.forward.input.0");
  EXPECT_EQ(GoldenOf(*result, "MintFunctional.layer_norm.0.forward.input.0"),
            "Functional.layer_norm.0.forward.input.0");
  EXPECT_EQ(GoldenOf(*result, "Primitive.MatMul.0.forward.input.0"),
            "Torch.matmul.0.forward.input.0");
  EXPECT_EQ(GoldenOf(*result, "Tensor.add_.0.forward.input.0"), "Tensor.add_.0.forward.input.0");
}

TEST_F(ApiMapping, NamesThatNoEntryHasAreSaid) {
  WriteSide("target", "mindspore", Call("Mint.add.0.forward", S(1), S(1)));
  WriteSide("golden", "pytorch", Call("Torch.add.0.forward", S(1), S(1)));
  Options options;
  options.api_mapping = config::ApiMap{Pair("Mint.add", "Torch.add"), Pair("Mint.ad", "Torch.ad")};
  const auto result = Compare(input(), options);
  ASSERT_TRUE(result.ok());
  EXPECT_THAT(result->notes,
              testing::Contains("-am: 1 of its names are not in the target dump, first Mint.ad"));
}

TEST_F(ApiMapping, TargetsOfPyTorchAreRefused) {
  WriteBoth("statistics", Call("Torch.add.0.forward", S(1), S(1)),
            Call("Torch.add.0.forward", S(1), S(1)));
  Options options;
  options.api_mapping_flag = true;
  const auto result = Compare(input(), options);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kUnsupported);
}

// A mapped pair is no guess: rows that other entries leave over do not turn it into one.
TEST_F(ApiMapping, MappedPairsAreNotProposals) {
  WriteSide("target", "mindspore",
            Call("Mint.sub.0.forward", S(1), S(7)) + "," + Call("Mint.only.0.forward", S(5), S(6)));
  WriteSide("golden", "pytorch", Call("Torch.subtract.0.forward", S(2), S(3)));
  Options options;
  options.rules = RuleSet::kDefault;
  options.api_mapping = config::ApiMap{Pair("Mint.sub", "Torch.subtract")};
  const auto result = Compare(input(), options);
  ASSERT_TRUE(result.ok());
  const Row* row = FindRow(*result, "Mint.sub.0.forward.output.0");
  ASSERT_TRUE(row->golden != nullptr);
  EXPECT_FALSE(row->proposed);
  EXPECT_EQ(result->counts.unmatched, 2u);
}

}  // namespace
}  // namespace msprobe::compare
