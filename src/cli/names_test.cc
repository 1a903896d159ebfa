#include "cli/names.h"

#include <gtest/gtest.h>

namespace msprobe::cli {
namespace {

const std::vector<std::string> kKnown = {"--target_path", "--golden_path", "--fuzzy_match", "-o",
                                         "--xlsx"};
const std::vector<std::string> kOther = {"--highlight", "-i"};

std::string Problems(std::vector<std::string> arguments) {
  std::string out;
  for (const Error& e : CheckOptions(arguments, kKnown, kOther, "the other way"))
    out += e.ToString() + "\n";
  return out;
}

TEST(CliNames, ReplacesExactlyUpstreamsSingleDashNames) {
  EXPECT_EQ(LongForm("-tp"), "--target_path");
  EXPECT_EQ(LongForm("-tensor_log"), "--is_print_compare_log");
  EXPECT_EQ(LongForm("-t"), "-t");
  EXPECT_EQ(LongForm("-tpx"), "-tpx");
  EXPECT_EQ(SingleDash("--golden_path"), "-gp");
  EXPECT_EQ(SingleDash("--xlsx"), "");
}

TEST(CliNames, AcceptsKnownOptionsInEverySpelling) {
  EXPECT_EQ(Problems({"-tp", "a", "--golden_path=b", "-fm", "-o", "--xlsx", "--"}), "");
}

TEST(CliNames, SuggestsTheNearestOption) {
  EXPECT_EQ(Problems({"--xlsy"}), "--xlsy: unknown option; did you mean --xlsx?\n");
  EXPECT_EQ(Problems({"-tq"}), "-tq: unknown option; did you mean -tp?\n");
  EXPECT_EQ(Problems({"--nothing-like-it"}),
            "--nothing-like-it: unknown option; see `msprobe --help`\n");
}

TEST(CliNames, TellsTheOtherSpellingApart) {
  EXPECT_EQ(Problems({"-hl", "-i"}),
            "-hl: belongs to the other spelling of this command; write: the other way\n"
            "-i: belongs to the other spelling of this command; write: the other way\n");
}

TEST(CliNames, ValuesThatBeginWithADashAreOptions) { EXPECT_NE(Problems({"-o", "-7"}), ""); }

}  // namespace
}  // namespace msprobe::cli
