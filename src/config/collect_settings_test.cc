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

}  // namespace
}  // namespace msprobe::config
