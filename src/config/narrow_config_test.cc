#include "config/collect_config_test.h"

namespace msprobe::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kNarrow[] = R"({"_comment": "why", "task": "tensor", "level": "mix", "step": [3],
  "tensor": {"list": ["Functional.relu.2.forward"], "data_mode": ["all"]}})";

class NarrowConfigTest : public CollectConfigTest {
 protected:
  Result<CollectConfig> Narrowed(const std::string& own, const std::string& narrow,
                                 const std::optional<std::string>& dump_path = {}) {
    CollectArguments arguments;
    arguments.config_path = Write("config.json", own);
    arguments.narrow_path = Write("narrow.json", narrow);
    arguments.dump_path = dump_path;
    return ReadCollectConfig(arguments, log_);
  }
};

TEST_F(NarrowConfigTest, WhatFromOneFileAndHowFromTheOther) {
  const auto c =
      Narrowed(R"({"task": "statistics", "dump_path": "/d/run//", "rank": [1], "step": [0, 3],
    "buffer_size": 65536, "evidence": "full", "backward_layout": "arguments",
    "statistics": {"list": ["linear"], "summary_mode": "sketch", "data_mode": ["forward"]}})",
               kNarrow);
  ASSERT_TRUE(c.ok()) << c.error().ToString();
  EXPECT_EQ(c->task, Task::kTensor);
  EXPECT_EQ(c->level, Level::kMix);
  EXPECT_THAT(c->steps, ElementsAre(3));
  EXPECT_THAT(c->ranks, ElementsAre(1));  // the narrow file says nothing of ranks
  EXPECT_THAT(c->list, ElementsAre("Functional.relu.2.forward"));
  EXPECT_TRUE(c->backward);
  EXPECT_FALSE(c->sketch);
  EXPECT_EQ(c->dump_path, "/d/run_narrow");
  EXPECT_EQ(c->buffer_size, 65536);
  EXPECT_EQ(c->evidence, Evidence::kFull);
  EXPECT_EQ(c->backward_layout, BackwardLayout::kArguments);
}

TEST_F(NarrowConfigTest, TheArgumentForThePathWins) {
  const auto c = Narrowed(R"({"dump_path": "/d/run"})", kNarrow, "/elsewhere");
  ASSERT_TRUE(c.ok());
  EXPECT_EQ(c->dump_path, "/elsewhere");
}

TEST_F(NarrowConfigTest, WithoutAFileOfOnesOwn) {
  CollectArguments arguments;
  arguments.narrow_path = Write("narrow.json", kNarrow);
  const auto c = ReadCollectConfig(arguments, log_);
  ASSERT_TRUE(c.ok());
  EXPECT_EQ(c->dump_path, "./dump_path_narrow");
  EXPECT_EQ(c->task, Task::kTensor);
}

TEST_F(NarrowConfigTest, MistakesAreNamedWithTheirFile) {
  const auto narrow = Narrowed(R"({"dump_path": "/d"})", R"({"task": "everything"})");
  ASSERT_FALSE(narrow.ok());
  EXPECT_THAT(narrow.error().ToString(), HasSubstr("narrow.json:1:2 task: "));
  const auto own = Narrowed(R"({"dump_path": 1})", kNarrow);
  ASSERT_FALSE(own.ok());
  EXPECT_THAT(own.error().ToString(), HasSubstr("config.json:1:2 dump_path: "));
  CollectArguments missing;
  missing.narrow_path = "/no/such.json";
  EXPECT_EQ(ReadCollectConfig(missing, log_).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace msprobe::config
