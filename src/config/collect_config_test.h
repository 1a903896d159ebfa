// Shared by the tests of config.json.
#pragma once

#include <string>
#include <string_view>

#include "config/collect_config.h"
#include "config/config_test_util.h"

namespace msprobe::config {

class CollectConfigTest : public ConfigTest {
 protected:
  Result<CollectConfig> Read(std::string_view content, CollectArguments arguments = {}) {
    arguments.config_path = Write("config.json", content);
    return ReadCollectConfig(arguments, log_);
  }
  // With the keys that every file needs.
  Result<CollectConfig> With(const std::string& keys, const std::string& section = "",
                             const std::string& task = "statistics") {
    return Read("{\"dump_path\": \"d\", \"task\": \"" + task + "\"" +
                (keys.empty() ? "" : ",\n" + keys) + ",\n\"" + task + "\": {" + section + "}}");
  }
  std::string ErrorText(const Result<CollectConfig>& config) {
    if (config.ok()) return "no error";
    const std::string text = config.error().ToString(), file = folder_ + "/config.json";
    return text.starts_with(file) ? text.substr(file.size()) : text;
  }
  std::string KeyError(const std::string& keys) { return ErrorText(With(keys)); }
  std::string SectionError(const std::string& section, const std::string& task = "statistics",
                           const std::string& keys = "") {
    return ErrorText(With(keys, section, task));
  }
};

}  // namespace msprobe::config
