// merge_result's and --config's YAML: what is read, and the smallest file for each refusal.
#include "config/config_test_util.h"
#include "config/merge_config.h"
#include "config/postprocess_config.h"

namespace msprobe::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class YamlSettings : public ConfigTest {
 protected:
  std::string MergeError(std::string_view text) {
    const auto out = ReadMergeConfig(Write("m.yaml", text), log_);
    return out.ok() ? "" : out.error().ToString();
  }
  std::string ProductError(std::string_view text) {
    const auto out = ReadPostprocessConfig(Write("p.yaml", text), log_);
    return out.ok() ? "" : out.error().ToString();
  }
};

TEST_F(YamlSettings, MergeListsAreRead) {
  const auto out = ReadMergeConfig(
      Write("m.yaml", "api:\n- Torch.mul\n- Torch.mul\n- 'Module.*'\ncompare_index: [Max diff]\n"),
      log_);
  ASSERT_TRUE(out.ok());
  EXPECT_THAT(out->apis, ElementsAre("Torch.mul", "Module.*"));
  EXPECT_THAT(out->metrics, ElementsAre("Max diff"));
  EXPECT_THAT(log_.warnings, IsEmpty());
}

TEST_F(YamlSettings, MergeErrorsNameTheirPlace) {
  EXPECT_THAT(MergeError(""), HasSubstr("the file is empty"));
  EXPECT_THAT(MergeError("- a"), HasSubstr("not a mapping"));
  EXPECT_THAT(MergeError("compare_index: [a]"), HasSubstr("api: missing"));
  EXPECT_THAT(MergeError("api:"), HasSubstr("api: empty"));
  EXPECT_THAT(MergeError("api: {a: b}"), HasSubstr("m.yaml:1:6 api: not a list of names"));
  EXPECT_THAT(MergeError("api:\n- a\n- [b]"), HasSubstr("m.yaml:3:3 api[1]: not a name"));
  EXPECT_THAT(MergeError("apis: [a]"), HasSubstr("did you mean api?"));
  EXPECT_THAT(MergeError("api: [a"), HasSubstr("not valid YAML"));
  EXPECT_THAT(MergeError("api: [a]\napi: [b]"), HasSubstr("m.yaml:2:1: the key \"api\" was given"));
  EXPECT_THAT(MergeError("api: &x [a]\ncompare_index: *x"), HasSubstr("aliases"));
  EXPECT_THAT(MergeError("api: [a]\n---\napi: [b]"), HasSubstr("more than one document"));
  EXPECT_THAT(MergeError("api: \"a\n"), HasSubstr("ends inside quotes"));
  EXPECT_EQ(MergeError("api: [a]\nentirely_other: 1"), "");
  EXPECT_THAT(log_.warnings, SizeIs(1));
}

// 17.2: right before left, whatever the order in the file.
TEST_F(YamlSettings, ProductsComeInOrder) {
  const auto out = ReadPostprocessConfig(
      Write("p.yaml",
            "left_matmul:\n  golden_tensor_map: {q.npy: [a.pt]}\n"
            "right_matmul:\n  target_tensor_map: {r.pt: [b.pt, c.pt]}\n  golden_tensor_map: {}\n"
            "left_right_matmul:\n  left_target_tensor_map: {l.pt: d.pt}\n"),
      log_);
  ASSERT_TRUE(out.ok());
  ASSERT_THAT(out->products, SizeIs(3));
  EXPECT_EQ(out->products[0].side, MatrixProduct::Side::kRight);
  EXPECT_FALSE(out->products[0].golden);
  EXPECT_THAT(out->products[0].data_names, ElementsAre("b.pt", "c.pt"));
  EXPECT_EQ(out->products[1].matrix, "q.npy");
  EXPECT_EQ(out->products[1].side, MatrixProduct::Side::kLeft);
  EXPECT_TRUE(out->products[1].golden);
  EXPECT_THAT(out->products[2].data_names, ElementsAre("d.pt"));
}

TEST_F(YamlSettings, ValidLengthsReplaceTheDefaultsOfTheirSide) {
  const auto out =
      ReadPostprocessConfig(Write("p.yaml", "valid_length:\n  target: {my_op: lengths}\n"), log_);
  ASSERT_TRUE(out.ok());
  ASSERT_THAT(out->target_lengths, SizeIs(1));
  EXPECT_EQ(out->target_lengths[0].api, "my_op");
  EXPECT_EQ(out->target_lengths[0].keyword, "lengths");
  EXPECT_THAT(out->golden_lengths, SizeIs(2));  // npu_dequant_swiglu_quant, npu_grouped_matmul
  const auto off = ReadPostprocessConfig(Write("o.yaml", "valid_length: {golden: {}}"), log_);
  ASSERT_TRUE(off.ok());
  EXPECT_THAT(off->golden_lengths, IsEmpty());
  EXPECT_THAT(off->target_lengths, SizeIs(2));
  EXPECT_THAT(ProductError("valid_length: {target: [a]}"),
              HasSubstr("valid_length.target: not a mapping"));
  EXPECT_THAT(ProductError("valid_length: {target: {a: [b]}}"),
              HasSubstr("not the name of an argument"));
}

TEST_F(YamlSettings, ProductErrorsNameTheirPlace) {
  EXPECT_EQ(ProductError(""), "");
  EXPECT_THAT(log_.warnings, SizeIs(1));
  EXPECT_THAT(ProductError("[]: a"), HasSubstr("p.yaml:1:"));
  EXPECT_THAT(ProductError("a"), HasSubstr("not a mapping"));
  EXPECT_THAT(ProductError("right_matmul: 3"),
              HasSubstr("p.yaml:1:15 right_matmul: not a mapping"));
  EXPECT_THAT(ProductError("right_matmull: {}"), HasSubstr("did you mean right_matmul?"));
  EXPECT_THAT(ProductError("left_matmul: {target_tensor_map: [a]}"),
              HasSubstr("left_matmul.target_tensor_map: not a mapping"));
  EXPECT_THAT(ProductError("left_matmul: {target_tensor_map: {m.pt: {a: b}}}"),
              HasSubstr("not a list of tensor files"));
}

}  // namespace
}  // namespace msprobe::config
