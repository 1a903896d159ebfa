#include "config/compare_config.h"

#include "config/config_test_util.h"

namespace msprobe::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

class CompareJsonTest : public ConfigTest {
 protected:
  Result<CompareInput> Read(std::string_view content) {
    return ReadCompareJson(Write("c.json", content), log_);
  }
  // The whole error line after the file name.
  std::string ErrorOf(std::string_view content) {
    const auto input = Read(content);
    if (input.ok()) return "no error";
    const std::string text = input.error().ToString(), file = folder_ + "/c.json";
    EXPECT_TRUE(text.starts_with(file)) << text;
    return text.substr(file.size());
  }
};

// The two samples of compare.md 1.2.
TEST_F(CompareJsonTest, Samples) {
  const auto single = ReadCompareJson(Data("compare_single.json"), log_);
  ASSERT_TRUE(single.ok());
  EXPECT_EQ(single->target_path, "npu/dump.json");
  EXPECT_EQ(single->golden_path, "gpu/dump.json");
  EXPECT_EQ(single->stack_path, "npu/stack.json");
  EXPECT_EQ(single->print_row_log, true);
  const auto multi = ReadCompareJson(Data("compare_multi.json"), log_);
  ASSERT_TRUE(multi.ok());
  EXPECT_EQ(multi->target_path, "npu/step0");
  EXPECT_EQ(multi->golden_path, "gpu/step0");
  EXPECT_EQ(multi->stack_path, std::nullopt);
  EXPECT_EQ(multi->print_row_log, false);
  EXPECT_THAT(log_.warnings, IsEmpty());
}

TEST_F(CompareJsonTest, OtherSpellings) {
  const auto guide = Read(R"({"npu_path": "a", "gpu_path": "b"})");
  ASSERT_TRUE(guide.ok());
  EXPECT_EQ(guide->golden_path, "b");
  EXPECT_EQ(guide->print_row_log, std::nullopt);
  const auto python = Read(
      R"({"npu_json_path": "a", "bench_json_path": "b", "stack_json_path": "c", "npu_dump_data_dir": "d",
                              "bench_dump_data_dir": "e"})");
  ASSERT_TRUE(python.ok());
  EXPECT_EQ(python->target_path, "a");
  EXPECT_EQ(python->golden_path, "b");
  EXPECT_EQ(python->stack_path, "c");
  EXPECT_THAT(log_.warnings, IsEmpty());
  EXPECT_TRUE(
      Read(R"({"npu_path": "a", "bench_path": "b", "gpu_path": "b", "stack_path": null})").ok());
}

TEST_F(CompareJsonTest, UnknownAndForeignKeysAreWarnings) {
  ASSERT_TRUE(Read("{\"npu_path\": \"a\", \"bench_path\": \"b\",\n \"common\": true, "
                   "\"stack_pth\": \"c\",\n \"colour\": 1}")
                  .ok());
  EXPECT_THAT(
      log_.warnings,
      ElementsAre(
          folder_ + "/c.json:2:2 common: this key is for MindSpore dumps and has no effect on "
                    "PyTorch dumps",
          folder_ + "/c.json:2:18 stack_pth: unknown key, ignored; did you mean \"stack_path\"?",
          folder_ + "/c.json:3:2 colour: unknown key, ignored"));
}

TEST_F(CompareJsonTest, RanksAndStepsThatAreWanted) {
  const auto some =
      Read(R"({"npu_path": "a", "bench_path": "b", "rank_id": [0, 3], "step_id": 7})");
  ASSERT_TRUE(some.ok());
  EXPECT_THAT(some->rank_ids, ElementsAre(0, 3));
  EXPECT_THAT(some->step_ids, ElementsAre(7));
  const auto all = Read(R"({"npu_path": "a", "bench_path": "b", "rank_id": [], "step_id": null})");
  ASSERT_TRUE(all.ok());
  EXPECT_THAT(all->rank_ids, IsEmpty());
  EXPECT_THAT(log_.warnings, IsEmpty());
  EXPECT_EQ(ErrorOf(R"({"npu_path": "a", "bench_path": "b", "rank_id": [0, -1]})"),
            ":1:53 rank_id[1]: the value -1 is not a number from 0 on; expected a list of numbers "
            "like [0, 3]");
}

TEST_F(CompareJsonTest, RepeatedKeysAreAWarningAndTheLastCounts) {
  const auto input = Read(R"({"npu_path": "a", "bench_path": "b", "npu_path": "c"})");
  ASSERT_TRUE(input.ok());
  EXPECT_EQ(input->target_path, "c");
  EXPECT_THAT(log_.warnings,
              ElementsAre(folder_ + "/c.json: 1 keys occur more than once; the last one counts"));
}

TEST_F(CompareJsonTest, MissingPaths) {
  EXPECT_EQ(ErrorOf(R"({"bench_path": "b"})"),
            " npu_path: the key is missing; expected \"npu_path\": the path of the target "
            "dump.json or step folder");
  EXPECT_EQ(ErrorOf(R"({"npu_path": "a", "bench_pth": "b"})"),
            " bench_path: the key is missing; expected \"bench_path\": the path of the golden "
            "dump.json or step folder; the file has "
            "\"bench_pth\"");
}

TEST_F(CompareJsonTest, WrongValues) {
  EXPECT_EQ(ErrorOf("{\"npu_path\": 3,\n \"bench_path\": \"b\"}"),
            ":1:2 npu_path: the value 3 is an integer; expected a string: the path of a dump.json, "
            "or of a step folder");
  EXPECT_EQ(
      ErrorOf(R"({"npu_path": "a", "bench_path": ""})"),
      ":1:19 bench_path: the path is empty; expected the path of a dump.json, or of a step folder");
  EXPECT_EQ(ErrorOf(R"({"npu_path": "a", "bench_path": null})"),
            ":1:19 bench_path: the value null is null; expected a string: the path of a dump.json, "
            "or of a step folder");
  EXPECT_EQ(ErrorOf(R"({"npu_path": "a\u0000", "bench_path": "b"})"),
            ":1:2 npu_path: the path contains a null character");
  EXPECT_EQ(ErrorOf(R"({"npu_path": "a", "bench_path": "b", "is_print_compare_log": 1})"),
            ":1:38 is_print_compare_log: the value 1 is an integer; expected true or false");
  EXPECT_EQ(ErrorOf(R"({"npu_path": "a", "bench_path": "b", "gpu_path": "c"})"),
            ":1:38 gpu_path: \"c\" contradicts \"b\" of bench_path; the two keys mean the same "
            "path: keep one");
}

TEST_F(CompareJsonTest, AllProblemsAtOnce) {
  EXPECT_EQ(ErrorOf("{\"npu_path\": [1],\n \"stack_path\": {}}"),
            ":1:2 npu_path: the value [1] is a list; expected a string: the path of a dump.json, "
            "or of a step folder\n" +
                folder_ +
                "/c.json bench_path: the key is missing; expected \"bench_path\": the path of the "
                "golden dump.json or step folder\n" +
                folder_ +
                "/c.json:2:2 stack_path: the value {} is an object; expected a string: the path of "
                "a dump.json, or of a step folder");
}

TEST_F(CompareJsonTest, NotAnObject) {
  EXPECT_EQ(
      ErrorOf("[1]"),
      ": the file holds a list; expected an object with the keys \"npu_path\" and \"bench_path\"");
}

TEST_F(CompareJsonTest, SyntaxErrorsHaveLineAndColumn) {
  const auto input = Read("{\"npu_path\": \"a\",\n  bench_path: \"b\"}");
  ASSERT_FALSE(input.ok());
  EXPECT_EQ(input.error().code, ErrorCode::kMalformed);
  EXPECT_EQ(input.error().line, 2u);
  EXPECT_EQ(input.error().column, 3u);
  EXPECT_EQ(ReadCompareJson(folder_ + "/none.json", log_).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(Read("").error().code, ErrorCode::kTruncated);
  EXPECT_EQ(Read(std::string(200, '[')).error().code, ErrorCode::kTooLarge);
}

TEST_F(CompareJsonTest, AByteOrderMarkIsFine) {
  EXPECT_TRUE(Read("\xEF\xBB\xBF{\"npu_path\": \"a\", \"bench_path\": \"b\"}").ok());
}

class NameMapTest : public ConfigTest {
 protected:
  Result<NameMap> Read(std::string_view content) {
    return ReadNameMapYaml(Write("m.yaml", content));
  }
  std::string ErrorOf(std::string_view content) {
    const auto map = Read(content);
    if (map.ok()) return "no error";
    const std::string text = map.error().ToString(), file = folder_ + "/m.yaml";
    EXPECT_TRUE(text.starts_with(file)) << text;
    return text.substr(file.size(), text.find("; expected a mapping") - file.size());
  }
};

TEST_F(NameMapTest, PairsInTheOrderOfTheFile) {
  const auto map = ReadNameMapYaml(Data("cell.yaml"));
  ASSERT_TRUE(map.ok());
  EXPECT_THAT(
      *map,
      ElementsAre(Pair("fc2.Dense", "fc2.Linear"), Pair("RowParallelLinear", "TERowParallelLinear"),
                  Pair("Torch.add.0.forward.input.0", "Torch.add.0.forward.input.1")));
}

TEST_F(NameMapTest, OtherForms) {
  EXPECT_THAT(*Read("{b: c, a: 1}"), ElementsAre(Pair("b", "c"), Pair("a", "1")));
  EXPECT_THAT(*Read("---\n'x y': \"µ\\u548C\"\n...\n"), ElementsAre(Pair("x y", "µ和")));
  EXPECT_THAT(*Read("{}"), IsEmpty());
}

TEST_F(NameMapTest, WhatIsNoMapping) {
  EXPECT_EQ(ErrorOf(""), ": the file is empty");
  EXPECT_THAT(ErrorOf("# only a comment\n"), HasSubstr("the file is empty"));
  EXPECT_EQ(ErrorOf("just text"), ":1:1: the file holds a single value");
  EXPECT_EQ(ErrorOf("- a\n- b\n"), ":1:1: the file holds a list");
  EXPECT_EQ(ErrorOf("a: b\nc: [d]\n"), ":2:4: the value of \"c\" is a list");
  EXPECT_EQ(ErrorOf("a: b\nc:\n  d: e\n"), ":3:3: the value of \"c\" is a mapping");
  EXPECT_THAT(ErrorOf("a: b\nc:\n"), HasSubstr("the value of \"c\" is empty"));
  EXPECT_EQ(ErrorOf("? [a]\n: b\n"), ":1:3: a key is a list");
  EXPECT_THAT(ErrorOf("a: b\n---\nc: d\n"), HasSubstr("more than one document"));
}

TEST_F(NameMapTest, RepeatedKeys) {
  EXPECT_EQ(ErrorOf("a: b\nc: d\na: e\n"), ":3:1: the key \"a\" was given before, in line 1");
}

TEST_F(NameMapTest, AliasesAndNestingCannotGrow) {
  EXPECT_THAT(ErrorOf("a: &x b\nc: *x\n"), HasSubstr("aliases are not supported"));
  EXPECT_EQ(Read(std::string(100000, '[')).error().code, ErrorCode::kMalformed);
}

TEST_F(NameMapTest, BrokenFiles) {
  const auto open_bracket = Read("a: b\nc: [d\n");
  ASSERT_FALSE(open_bracket.ok());
  EXPECT_EQ(open_bracket.error().code, ErrorCode::kMalformed);
  EXPECT_THAT(open_bracket.error().message, HasSubstr("not valid YAML"));
  EXPECT_EQ(ErrorOf("a: b\nc: \"d\n"), ":2:4: the file ends inside quotes");
  EXPECT_EQ(ErrorOf("\xEF\xBB\xBF"
                    "a: 'it''s\n"),
            ":1:4: the file ends inside quotes");
  EXPECT_EQ(ErrorOf("a: \"x\\\"\n"), ":1:4: the file ends inside quotes");
  EXPECT_THAT(*Read("'it''s': \"x\\\"\"\n"), ElementsAre(Pair("it's", "x\"")));
  EXPECT_EQ(Read("a: \xFF").error().code, ErrorCode::kMalformed);
  EXPECT_EQ(ReadNameMapYaml(folder_ + "/none.yaml").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(ReadNameMapYaml(folder_).error().code, ErrorCode::kNotRegularFile);
}

}  // namespace
}  // namespace msprobe::config
