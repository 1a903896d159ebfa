// Every input of the corpora once, in whatever build the tests run: each was a seed or a finding.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "fuzz/target.h"

namespace msprobe::fuzz {
namespace {

std::vector<std::string> FilesOf(std::string_view target) {
  std::vector<std::string> files;
  for (const auto& item :
       std::filesystem::directory_iterator(JoinPath(MSPROBE_FUZZ_CORPUS, target))) {
    if (item.is_regular_file()) files.push_back(item.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

class Corpus : public ::testing::TestWithParam<std::string> {};

TEST_P(Corpus, EveryInputComesBack) {
  const Target* target = FindTarget(GetParam());
  ASSERT_NE(target, nullptr);
  const std::vector<std::string> files = FilesOf(target->name);
  ASSERT_FALSE(files.empty());
  for (const std::string& file : files) {
    SCOPED_TRACE(file);
    const auto text = ReadTextFile(file, 64u << 20);
    ASSERT_TRUE(text.ok());
    target->run(AsBytes(*text));
  }
  target->run({});
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const Target& target : Targets()) names.emplace_back(target.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Fuzz, Corpus, ::testing::ValuesIn(Names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace msprobe::fuzz
