#include "app/advisor.h"

#include <gtest/gtest.h>

namespace msprobe::app {
namespace {

using compare::Leaf;
using compare::Mode;
using compare::OldAccuracy;
using compare::OldResult;
using compare::Row;

// A comparison of one row with this name that fails in statistics mode.
struct OneFailure {
  explicit OneFailure(std::string_view name) {
    leaf.name = name;
    Row row;
    row.target = row.golden = &leaf;
    row.result = OldResult::kWarning;
    comparison.mode = Mode::kStatistics;
    comparison.rows.push_back(row);
  }
  Leaf leaf;
  compare::Comparison comparison;
};

struct Choice {
  std::string_view name;
  Advice advice;
};

// The table of compare.md 13, with a name for each line.
TEST(Advisor, ChoosesByTheNameOfTheRow) {
  for (const Choice& c : {
           Choice{"Torch.add.0.forward.input.0", Advice::kForwardInput},  // 1a
           Choice{"Torch.matmul.0.forward.input.0",
                  Advice::kForwardInput},  // 1a: step 2 only after 1b, 1d
           Choice{"Torch.add.0.forward.output.0", Advice::kForward},                   // 1b
           Choice{"Torch.add.0.backward.input.0", Advice::kBackwardInput},             // 1c
           Choice{"Torch.add.0.backward.output.0", Advice::kBackward},                 // 1d
           Choice{"Functional.conv2d.0.forward.output.0", Advice::kNondeterministic},  // 2 after 1b
           Choice{"Torch.lstm.1.backward.output.0", Advice::kNondeterministic},        // 2 after 1d
       }) {
    const OneFailure failure(c.name);
    const AdvisorFinding finding = Advise(failure.comparison);
    EXPECT_EQ(finding.advice, c.advice) << c.name;
    EXPECT_EQ(finding.node, c.name);
    EXPECT_EQ(finding.line, 0u);
  }
}

TEST(Advisor, NamesTheFirstFailingRowOfEachMode) {
  std::vector<Leaf> leaves(4);
  leaves[2].name = "Torch.c.0.forward.output.0";
  compare::Comparison comparison;
  for (Leaf& leaf : leaves) {
    Row row;
    row.target = row.golden = &leaf;
    comparison.rows.push_back(row);
  }
  comparison.mode = Mode::kTensor;
  for (Row& row : comparison.rows) row.accuracy = OldAccuracy::kYes;
  EXPECT_FALSE(Advise(comparison).line);
  comparison.rows[2].accuracy = comparison.rows[3].accuracy = OldAccuracy::kNo;
  EXPECT_EQ(Advise(comparison).line, 2u);
  comparison.mode = Mode::kMd5;
  EXPECT_FALSE(Advise(comparison).line);  // the accuracy column belongs to tensor mode
  comparison.rows[2].result = OldResult::kDifferent;
  EXPECT_EQ(Advise(comparison).node, leaves[2].name);
}

TEST(Advisor, NeverAdvisesOnRowsThatWereNotCompared) {
  OneFailure failure("Torch.add.0.forward.output.0");
  failure.comparison.rows[0].uncompared = true;
  EXPECT_EQ(Advise(failure.comparison).advice, Advice::kNothingCompared);
  EXPECT_EQ(AdvisorText(Advise(failure.comparison), {}).find("meet"), std::string::npos);
}

TEST(Advisor, BeginsWithTheThreeLinesThatScriptsRead) {
  EXPECT_TRUE(AdvisorText({}, {}).starts_with(
      "Line: NA\nSuspect Nodes: NA\nExpert Advice: All compared data meet"));
  const std::string text =
      AdvisorText({7, "Tensor.to.0.forward.output.0", Advice::kNondeterministic}, {});
  EXPECT_TRUE(
      text.starts_with("Line: 7\nSuspect Nodes: Tensor.to.0.forward.output.0\nExpert Advice: "));
  EXPECT_NE(text.find("seed_all(mode=True)"), std::string::npos);
}

// What stands after the advice.
std::string Tail(const AdvisorFinding& finding, const AdvisorContext& context) {
  const std::string text = AdvisorText(finding, context);
  return text.substr(text.find("Spreadsheet Row"));
}

TEST(Advisor, SaysWhereToLookAndWhatToRunNext) {
  compare::FirstBad bad;
  bad.entry = "Torch.mul.0.forward";
  bad.reason = "the norm is off by 3";
  bad.row_index = 4;
  AdvisorContext context;
  context.target_json = "a b/dump.json";
  context.golden_json = "it's/dump.json";
  context.first_bad = &bad;
  context.not_compared = {{"shapes differ", 2, {"Torch.a.0.forward", "Torch.b.0.forward"}},
                          {"only in the golden dump", 1, {"Torch.c.0.forward"}}};
  EXPECT_EQ(Tail({7, "Torch.add.0.forward.output.0", Advice::kForward}, context),
            "Spreadsheet Row: 9\n"
            "First Bad Entry: Torch.mul.0.forward (row 6: the norm is off by 3)\n"
            "Not Compared: 2 rows, shapes differ: Torch.a.0.forward, …\n"
            "              1 rows, only in the golden dump: Torch.c.0.forward\n"
            "Next: replay each recorded API beside the CPU in higher precision: msprobe acc_check "
            "-api_info 'a b/dump.json'\n");
  const std::string input =
      Tail({7, "Torch.add.0.forward.input.0", Advice::kForwardInput}, context);
  EXPECT_TRUE(input.ends_with("msprobe compare -tp 'a b/dump.json' -gp 'it'\\''s/dump.json' -da\n"))
      << input;
}

TEST(Advisor, WithoutAFailureThereIsNoRowAndNothingToRun) {
  EXPECT_EQ(Tail({}, {}),
            "Spreadsheet Row: NA\nFirst Bad Entry: none\nNot Compared: nothing\n"
            "Next: nothing; the two runs agree as far as they were recorded.\n");
}

}  // namespace
}  // namespace msprobe::app
