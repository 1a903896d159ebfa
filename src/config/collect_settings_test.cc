#include "config/collect_config_test.h"

namespace msprobe::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(CollectConfigTest, TheEchoCanBeReadAgain) {
  CollectArguments arguments;
  arguments.config_path = Data("every_key.json");
  const auto first = ReadCollectConfig(arguments, log_);
  ASSERT_TRUE(first.ok());
  const auto second = Read(SettingsJson(*first));
  ASSERT_TRUE(second.ok()) << second.error().ToString() << SettingsJson(*first);
  EXPECT_THAT(SettingDifferences(*first, *second), IsEmpty());
  EXPECT_THAT(SettingsJson(*first),
              HasSubstr("\"rank\": [\"0-2\", 7], \"step\": [0, 5], \"level\": \"mix\""));
}

TEST_F(CollectConfigTest, Differences) {
  const auto a = ReadCollectConfig({}, log_);
  CollectConfig b = *a;
  b.level = Level::kL0;
  b.steps = {1};
  b.list = {"relu"};
  EXPECT_THAT(SettingDifferences(*a, b),
              ElementsAre("step: [1] instead of []", "level: \"L0\" instead of \"L1\"",
                          "statistics.list: [\"relu\"] instead of []"));
}

TEST_F(CollectConfigTest, Sketch) {
  const auto plain = With("", "\"summary_mode\": \"sketch\"");
  ASSERT_TRUE(plain.ok());
  EXPECT_TRUE(plain->sketch);
  EXPECT_EQ(plain->summary_mode, SummaryMode::kStatistics);
  EXPECT_EQ(plain->sketch_size, 256);
  EXPECT_EQ(plain->sketch_seed, 1);
  EXPECT_THAT(SettingsJson(*plain), HasSubstr("\"summary_mode\": \"sketch\", \"sketch_size\": 256, "
                                              "\"sketch_seed\": 1"));
  EXPECT_TRUE(With("", "\"summary_mode\": [\"statistics\", \"sketch\"]")->sketch);
  const auto both = With("",
                         "\"summary_mode\": [\"sketch\", \"md5\"], \"sketch_size\": 512, "
                         "\"sketch_seed\": 9223372036854775807",
                         "tensor");
  ASSERT_TRUE(both.ok());
  EXPECT_TRUE(both->sketch);
  EXPECT_EQ(both->summary_mode, SummaryMode::kMd5);
  EXPECT_EQ(both->sketch_size, 512);
  EXPECT_EQ(both->sketch_seed, INT64_MAX);
  EXPECT_THAT(SettingsJson(*both), HasSubstr("\"summary_mode\": [\"md5\", \"sketch\"]"));
  EXPECT_EQ(SectionError("\"summary_mode\": \"sketch\", \"sketch_size\": 32"),
            ":2:42 statistics.sketch_size: the value 32 is out of range; expected an integer from "
            "64 to 4096");
  EXPECT_EQ(SectionError("\"summary_mode\": \"sketch\", \"sketch_size\": 100"),
            ":2:42 statistics.sketch_size: the value 100 is no multiple of 64");
  EXPECT_EQ(SectionError("\"summary_mode\": \"sketch\", \"sketch_seed\": -1"),
            ":2:42 statistics.sketch_seed: the value -1 is out of range; expected an integer of at "
            "least 0");
  log_.warnings.clear();
  ASSERT_TRUE(With("", "\"sketch_size\": 256, \"sketch_seed\": 3").ok());
  EXPECT_THAT(log_.warnings,
              ElementsAre(HasSubstr("statistics.sketch_seed: this key has no effect: the "
                                    "summary_mode has no \"sketch\"")));
}

}  // namespace
}  // namespace msprobe::config
