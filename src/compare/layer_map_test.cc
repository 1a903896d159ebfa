// -lm: entries of the same place in two module trees (compare.md 22).
#include "compare/layer_map.h"

#include <gmock/gmock.h>

#include "compare/test_dump.h"

namespace msprobe::compare {
namespace {

Side& Named(Side& side, const std::vector<std::string>& names) {
  for (const std::string& name : names) side.entries.push_back({name, 0, 0});
  return side;
}

std::vector<std::string> Scopes(const std::vector<LayerPlace>& places) {
  std::vector<std::string> out;
  for (const LayerPlace& p : places) out.push_back(p.scope);
  return out;
}

TEST(LayerPlaces, ModulesStandAtTheirPathAndCallsInTheirModule) {
  Side side;
  Named(side, {"Module.a.fc.Linear.forward.0", "Torch.add.0.forward", "Torch.add.0.backward",
               "Torch.mul.0.forward", "Module.a.fc.Linear.parameters_grad.0",
               "Module.Net.forward.0", "odd"});
  const Parents parents = {{"Torch.add.0.forward", "Module.a.fc.Linear.forward.0"},
                           {"Torch.mul.0.forward", ""}};
  const auto places = PlacesOf(side, &parents, nullptr);
  EXPECT_EQ(Scopes(places), (std::vector<std::string>{"a.fc", "a.fc.add", "a.fc.add", "mul", "a.fc",
                                                      "TopLayer", ""}));
  EXPECT_EQ(places[0].type, "Linear");
  EXPECT_EQ(places[2].state, "backward");
  EXPECT_EQ(places[4].state, "parameters_grad");
}

// The function of the framework that user code called; entrances of modules are no place.
TEST(LayerPlaces, FrameworkFunctionsOnTheWayAreNamed) {
  Side side;
  Named(side, {"Functional.linear.0.forward", "Functional.relu.0.forward"});
  dump::StackTable stacks;
  const std::string torch = "File /x/site-packages/torch/nn/";
  stacks.stacks = {{torch + "functional.py, line 3, in inner, \n a()",
                    torch + "functional.py, line 9, in multi_head_attention_forward, \n b()",
                    torch + "modules/module.py, line 1, in _call_impl, \n c()",
                    "File /code/net.py, line 7, in forward, \n d()",
                    torch + "functional.py, line 5, in outside, \n e()"},
                   {torch + "modules/module.py, line 1, in _call_impl, \n c()",
                    "File /code/net.py, line 8, in forward, \n d()"}};
  stacks.of_entry = {{"Functional.linear.0.forward", 0}, {"Functional.relu.0.forward", 1}};
  const Parents parents;
  EXPECT_EQ(Scopes(PlacesOf(side, &parents, &stacks)),
            (std::vector<std::string>{"multi_head_attention_forward.linear", "relu"}));
}

TEST(LayerPlaces, StagesOfAPipelineBeginAtZero) {
  Side side;
  Named(side,
        {"Cell.net.body.ParallelTransformer.forward.0", "Cell.net.body.layers.4.Layer.forward.0",
         "Cell.net.body.layers.5.fc.Dense.forward.0", "Cell.other.layers.5.Layer.forward.0"});
  const Parents parents;
  EXPECT_EQ(Scopes(PlacesOf(side, &parents, nullptr)),
            (std::vector<std::string>{"net.body", "net.body.layers.0", "net.body.layers.1.fc",
                                      "other.layers.5"}));
}

TEST(GoldenScopes, RulesOfTheParentsClassApplyFromTheRootOn) {
  const config::LayerMap rules = {{"TopLayer", {{"network", "module"}}},
                                  {"Net", {{"model.embedding", "embed"}, {"model", "body"}}},
                                  {"Block", {{"attention", "self_attn"}}}};
  const std::unordered_map<std::string, std::string> types = {
      {"network", "Net"}, {"network.model", "Model"}, {"network.model.layers.0", "Block"}};
  const auto of = [&](const std::string& scope) { return GoldenScope(scope, rules, types); };
  EXPECT_EQ(of("network"), "module");
  EXPECT_EQ(of("network.model.embedding"), "module.embed");  // longest rule, skips a level
  EXPECT_EQ(of("network.model.layers.0.attention.fc"), "module.body.layers.0.self_attn.fc");
  EXPECT_EQ(of("network.model.attention"), "module.body.attention");  // no Block above it
  EXPECT_EQ(of("network.modeled"), "module.modeled");                 // whole components only
}

TEST(LayerPairs, SameStateAndPositionAtAPlaceMeet) {
  const LayerPlace fc = {"net.fc", "Dense", "forward"}, grad = {"net.fc", "Dense", "backward"};
  const LayerPlace lin = {"net.fc", "Linear", "forward"}, back = {"net.fc", "Linear", "backward"};
  EXPECT_EQ(LayerPartners({fc, grad, fc, fc}, {back, lin, lin}, {}),
            (std::vector<uint32_t>{1, 0, 2, kNoEntry}));
}

class LayerMapping : public DumpTest {
 protected:
  void WriteModules(const std::string& side, const std::string& data, const char* construct) {
    Write(side, "statistics", data);
    if (construct != nullptr) std::ofstream(root_ + side + "/construct.json") << construct;
  }
};

TEST_F(LayerMapping, DifferentlyNestedModelsMeetByPlace) {
  const std::string a = Stats(1, 0, 0.5, 2), b = Stats(3, 0, 1, 4);
  WriteModules("target",
               Call("Module.network.fc.Dense.forward.0", a, b) + "," +
                   Call("Mint.relu.0.forward", b, b) + "," + Call("Mint.relu.1.forward", a, a),
               R"({"Module.network.fc.Dense.forward.0": "Module.network.Net.forward.0",
                   "Mint.relu.0.forward": "Module.network.Net.forward.0",
                   "Mint.relu.1.forward": "Module.network.fc.Dense.forward.0"})");
  WriteModules("golden",
               Call("Torch.relu.0.forward", a, a) + "," +
                   Call("Module.module.fc.Linear.forward.0", a, b) + "," +
                   Call("Torch.relu.1.forward", b, b),
               R"({"Torch.relu.0.forward": "Module.module.fc.Linear.forward.0",
                   "Torch.relu.1.forward": "Module.module.Net.forward.0"})");
  Options options;
  options.layer_mapping = config::LayerMap{{"TopLayer", {{"network", "module"}}}};
  const auto result = Compare(input(), options);
  ASSERT_TRUE(result.ok()) << result.error().ToString();
  EXPECT_TRUE(result->by_layers);
  EXPECT_EQ(FindRow(*result, "Module.network.fc.Dense.forward.0.output.0")->golden->name,
            "Module.module.fc.Linear.forward.0.output.0");
  EXPECT_EQ(FindRow(*result, "Mint.relu.0.forward.input.0")->golden->name,
            "Torch.relu.1.forward.input.0");
  EXPECT_EQ(FindRow(*result, "Mint.relu.1.forward.input.0")->golden->name,
            "Torch.relu.0.forward.input.0");
  EXPECT_EQ(result->counts.pass, 6u);
}

TEST_F(LayerMapping, WithoutConstructJsonNamesCountAndThatIsSaid) {
  const std::string a = Stats(1, 0, 0.5, 2);
  WriteModules("target", Call("Torch.relu.0.forward", a, a), "{}");
  WriteModules("golden", Call("Torch.relu.0.forward", a, a), nullptr);
  Options options;
  options.layer_mapping.emplace();
  const auto result = Compare(input(), options);
  ASSERT_TRUE(result.ok());
  EXPECT_FALSE(result->by_layers);
  EXPECT_EQ(result->counts.pass, 2u);
  EXPECT_THAT(result->notes, testing::Contains(testing::HasSubstr("-lm has no effect")));
}

TEST_F(LayerMapping, ABrokenConstructJsonIsAnError) {
  const std::string a = Stats(1, 0, 0.5, 2);
  WriteModules("target", Call("Torch.relu.0.forward", a, a), "[1");
  WriteModules("golden", Call("Torch.relu.0.forward", a, a), "{}");
  Options options;
  options.layer_mapping.emplace();
  EXPECT_FALSE(Compare(input(), options).ok());
}

}  // namespace
}  // namespace msprobe::compare
