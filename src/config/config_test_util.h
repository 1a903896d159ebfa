// Helpers of the tests of this folder.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"

namespace msprobe::config {

// Keeps what is logged.
class KeepingLog final : public LogSink {
 public:
  void Log(LogLevel level, std::string_view message) override {
    if (level == LogLevel::kWarning) warnings.emplace_back(message);
  }
  std::vector<std::string> warnings;
};

class ConfigTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "msprobe-config-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, std::string_view content) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << content;
    return folder_ + "/" + name;
  }
  static std::string Data(const std::string& name) {
    return std::string(MSPROBE_TEST_DATA) + "/config/" + name;
  }

  std::string folder_;
  KeepingLog log_;
};

}  // namespace msprobe::config
