// The YAML files of -am and -lm: what is read, and the smallest file for each refusal.
#include "config/module_maps.h"

#include "config/config_test_util.h"

namespace msprobe::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

class ModuleMaps : public ConfigTest {
 protected:
  std::string ApiError(std::string_view text) {
    const auto out = ReadApiMapYaml(Write("a.yaml", text), log_);
    return out.ok() ? "" : out.error().ToString();
  }
  std::string LayerError(std::string_view text) {
    const auto out = ReadLayerMapYaml(Write("l.yaml", text));
    return out.ok() ? "" : out.error().ToString();
  }
};

TEST_F(ModuleMaps, ApiPairsWithTheirPlaces) {
  const auto out = ReadApiMapYaml(
      Write("a.yaml",
            "- ms_api: Mint.sub\n  pt_api: Torch.sub\n  ms_args: [0, 1]\n  pt_args: [1, 0]\n"
            "- {ms_api: LayerNorm, pt_api: LayerNorm, ms_parameters: [gamma], "
            "pt_parameters: [weight], ms_outputs: [], pt_outputs: []}\n"),
      log_);
  ASSERT_TRUE(out.ok()) << out.error().ToString();
  ASSERT_THAT(*out, SizeIs(2));
  EXPECT_EQ((*out)[0].target, "Mint.sub");
  EXPECT_EQ((*out)[0].golden, "Torch.sub");
  EXPECT_THAT((*out)[0].arguments->target, ElementsAre("0", "1"));
  EXPECT_THAT((*out)[0].arguments->golden, ElementsAre("1", "0"));
  EXPECT_FALSE((*out)[0].outputs || (*out)[0].parameters || (*out)[0].gradients);
  EXPECT_THAT((*out)[1].parameters->target, ElementsAre("gamma"));
  EXPECT_THAT((*out)[1].outputs->target, IsEmpty());
}

TEST_F(ModuleMaps, ApiErrorsNameTheirPlace) {
  EXPECT_THAT(ApiError(""), HasSubstr("the file is empty"));
  EXPECT_THAT(ApiError("a: b"), HasSubstr("not a list"));
  EXPECT_THAT(ApiError("- a"), HasSubstr("a.yaml:1:3 [0]: not a mapping"));
  EXPECT_THAT(ApiError("- {ms_api: a}"), HasSubstr("[0].pt_api: missing"));
  EXPECT_THAT(ApiError("- {ms_api: a, pt_api: [b]}"), HasSubstr("[0].pt_api: not a name"));
  EXPECT_THAT(ApiError("- {ms_api: a, pt_api: b, ms_args: [0]}"),
              HasSubstr("[0].pt_args: missing"));
  EXPECT_THAT(ApiError("- {ms_api: a, pt_api: b, ms_args: [0], pt_args: [0, 1]}"),
              HasSubstr("2 places against 1 of ms_args"));
  EXPECT_THAT(ApiError("- {ms_api: a, pt_api: b, ms_args: [0, 0], pt_args: [0, 1]}"),
              HasSubstr("[0].ms_args: 0 stands twice"));
  EXPECT_THAT(ApiError("- {ms_api: a, pt_api: b, ms_args: 0, pt_args: 0}"),
              HasSubstr("not a list"));
  EXPECT_THAT(ApiError("- {ms_api: a, pt_api: b}\n- {ms_api: a, pt_api: c}"),
              HasSubstr("a was given before"));
  EXPECT_THAT(ApiError("- {ms_api: a, pt_api: b, ms_arg: [0]}"),
              HasSubstr("did you mean ms_args?"));
  EXPECT_EQ(ApiError("- {ms_api: a, pt_api: b, remark: c}"), "");
  EXPECT_THAT(log_.warnings, SizeIs(1));
}

TEST_F(ModuleMaps, LayerRulesLongestFirst) {
  const auto out = ReadLayerMapYaml(Write("l.yaml",
                                          "TopLayer:\n  a: b\nCell:\n  net: module\nBlock:\n  fc: "
                                          "linear\n  body.embedding: embed (old name)\n"));
  ASSERT_TRUE(out.ok()) << out.error().ToString();
  ASSERT_THAT(*out, SizeIs(2));
  EXPECT_EQ((*out)[0].type, "TopLayer");
  EXPECT_THAT((*out)[0].names, ElementsAre(Pair("net", "module"), Pair("a", "b")));
  EXPECT_THAT((*out)[1].names, ElementsAre(Pair("body.embedding", "embed"), Pair("fc", "linear")));
}

TEST_F(ModuleMaps, LayerErrorsNameTheirPlace) {
  EXPECT_THAT(LayerError(""), HasSubstr("the file is empty"));
  EXPECT_THAT(LayerError("- a"), HasSubstr("not a mapping"));
  EXPECT_THAT(LayerError("Block: fc"), HasSubstr("l.yaml:1:8 Block: not a mapping of names"));
  EXPECT_THAT(LayerError("Block: {fc: [a]}"), HasSubstr("Block.fc: not a name"));
  EXPECT_THAT(LayerError("Block: {fc: (x)}"), HasSubstr("Block.fc: not a name"));
  EXPECT_THAT(LayerError("Block: {fc: a}\nBlock: {fc: b}"), HasSubstr("was given before"));
}

}  // namespace
}  // namespace msprobe::config
