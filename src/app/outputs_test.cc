// What a comparison of two ranks writes for programs and what merging makes of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "app/compare_app.h"
#include "app/merge_app.h"
#include "base/file.h"
#include "json/json.h"

namespace msprobe::app {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

// rank0: `add` is right, `mul` has an output of four times the norm (R2s), `gone` has no partner.
// rank1: all is right. The golden dump has a rank2 more.
class OutputsTest : public testing::Test {
 protected:
  OutputsTest() {
    std::string pattern = (fs::temp_directory_path() / "msprobe_outputs_XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    Write("t/rank0", Call("Torch.add.0.forward", 2) + "," + Call("Torch.mul.0.forward", 8) + "," +
                         Call("Torch.<gone>.0.forward", 2));
    Write("g/rank0", Call("Torch.add.0.forward", 2) + "," + Call("Torch.mul.0.forward", 2));
    Write("t/rank1", Call("Torch.add.0.forward", 2) + "," + Call("Torch.mul.0.forward", 2));
    Write("g/rank1", Call("Torch.add.0.forward", 2) + "," + Call("Torch.mul.0.forward", 2));
    Write("g/rank2", Call("Torch.add.0.forward", 2));
  }
  ~OutputsTest() override { fs::remove_all(root_); }

  static std::string Leaf(int norm) {
    return R"({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 1, "Min": 0,)"
           R"( "Mean": 0.5, "Norm": )" +
           std::to_string(norm) + R"(, "requires_grad": false})";
  }
  static std::string Call(const std::string& name, int norm) {
    return "\"" + name + R"(": {"input_args": [)" + Leaf(2) + R"(], "output": [)" + Leaf(norm) +
           "]}";
  }
  void Write(const std::string& folder, const std::string& data) const {
    fs::create_directories(root_ + "/" + folder);
    std::ofstream(root_ + "/" + folder + "/dump.json")
        << R"({"task": "statistics", "level": "L1", "data": {)" << data << "}}";
  }
  std::string Read(const std::string& name) const {
    std::ifstream in(root_ + "/" + name);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }

  CompareRun Run() {
    CompareOptions options;
    options.rules = RuleSet::kBase;
    options.target = root_ + "/t";
    options.golden = root_ + "/g";
    options.output_dir = root_ + "/out";
    options.json_path = root_ + "/rows.jsonl";
    options.junit_path = root_ + "/tests.xml";
    options.workers = 1;  // ranks come in order
    Result<CompareRun> run = Compare(options, NullLog(), NullProgress(), nullptr);
    EXPECT_TRUE(run.ok()) << run.error().ToString();
    return std::move(run).value();
  }

  std::string root_;
};

TEST_F(OutputsTest, EveryRowIsALineOfStrictJson) {
  Run();
  std::istringstream lines(Read("rows.jsonl"));
  std::vector<std::string> seen;
  for (std::string line; std::getline(lines, line);) {
    Result<json::Document> parsed = json::ParseDocument(line);
    ASSERT_TRUE(parsed.ok()) << line;
    const json::Value& row = parsed->root();
    const auto text = [&](std::string_view key) { return std::string(row.Find(key)->as_string()); };
    seen.push_back(text("rank") + " " + std::to_string(row.Find("row")->as_int()) + " " +
                   text("entry") + " " + text("state") + " " + text("verdict"));
    EXPECT_TRUE(row.Find("Err_message")->is_array()) << line;
    EXPECT_EQ(text("verdict"), text("Result"));
  }
  EXPECT_THAT(
      seen,
      ElementsAre(
          "rank0 0 Torch.add.0.forward input pass", "rank0 1 Torch.add.0.forward output pass",
          "rank0 2 Torch.mul.0.forward input pass", "rank0 3 Torch.mul.0.forward output error",
          "rank0 4 Torch.<gone>.0.forward input unmatched",
          "rank0 5 Torch.<gone>.0.forward output unmatched",
          "rank1 0 Torch.add.0.forward input pass", "rank1 1 Torch.add.0.forward output pass",
          "rank1 2 Torch.mul.0.forward input pass", "rank1 3 Torch.mul.0.forward output pass"));
}

TEST_F(OutputsTest, JunitHasASuiteForEachRankAndATestForEachEntry) {
  const CompareRun run = Run();
  EXPECT_TRUE(run.partial);  // rank2 has no partner
  const std::string xml = Read("tests.xml");
  // rank0: three entries, rank1: two, rank2: one in error.
  EXPECT_THAT(xml, HasSubstr("tests=\"6\" failures=\"1\" errors=\"1\" skipped=\"1\""));
  EXPECT_THAT(xml, HasSubstr("<testsuite name=\"rank0\" tests=\"3\" failures=\"1\" errors=\"0\" "
                             "skipped=\"1\">"));
  EXPECT_THAT(xml, HasSubstr("<testcase classname=\"rank0\" name=\"Torch.add.0.forward\"/>"));
  EXPECT_THAT(xml, HasSubstr("<failure type=\"error\" message=\"Torch.mul.0.forward.output.0: "));
  EXPECT_THAT(xml, HasSubstr("name=\"Torch.&lt;gone&gt;.0.forward\""));
  EXPECT_THAT(xml, HasSubstr("<skipped message=\"Torch.&lt;gone&gt;.0.forward.input.0: only in the "
                             "target dump\"/>"));
  EXPECT_THAT(xml, HasSubstr("<error message=\"missing in the target dump\"/>"));
}

TEST_F(OutputsTest, MergingPutsTheRanksSideBySideAndNamesTheWorst) {
  Run();
  MergeOptions options;
  options.input_dir = root_ + "/out";
  options.output_dir = root_ + "/merged";
  options.config.apis = {"Torch.mul"};
  options.config.metrics = {"L2norm diff"};
  const Result<MergeRun> run = MergeReports(options, NullLog(), nullptr);
  ASSERT_TRUE(run.ok()) << run.error().ToString();
  EXPECT_THAT(run->sheets, ElementsAre("L2norm diff"));
  EXPECT_EQ(run->rows, 2u);
  ASSERT_EQ(run->ranks.size(), 2u);
  EXPECT_EQ(run->ranks[0].label, "rank0");
  EXPECT_EQ(run->ranks[0].mode, "statistics");
  ASSERT_EQ(run->worst.size(), 1u);
  EXPECT_THAT(run->worst[0], HasSubstr("Torch.mul.0.forward.output.0"));
  EXPECT_THAT(run->worst[0], HasSubstr("on rank0: 6"));  // 8 against 2
  EXPECT_TRUE(PathExists(run->path));
}

TEST_F(OutputsTest, MergingNeedsTwoRanksAndOneOfTheNames) {
  Run();
  MergeOptions options;
  options.input_dir = root_ + "/out";
  options.output_dir = root_ + "/merged";
  options.config.apis = {"Torch.sub"};
  EXPECT_EQ(MergeReports(options, NullLog(), nullptr).error().code, ErrorCode::kNothingToDo);
  options.input_dir = root_ + "/t";
  EXPECT_EQ(MergeReports(options, NullLog(), nullptr).error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(PathExists(root_ + "/merged"));  // nothing was written, nothing is left
}

TEST_F(OutputsTest, RanksAndStepsCanBeChosen) {
  CompareOptions options;
  options.target = root_ + "/t";
  options.golden = root_ + "/g";
  options.output_dir = root_ + "/out";
  options.rank_ids = {1};
  const Result<CompareRun> run = Compare(options, NullLog(), NullProgress(), nullptr);
  ASSERT_TRUE(run.ok()) << run.error().ToString();
  ASSERT_EQ(run->ranks.size(), 1u);
  EXPECT_EQ(run->ranks[0].job.rank, "rank1");
  EXPECT_FALSE(run->partial);
  options.rank_ids = {9};
  EXPECT_EQ(Compare(options, NullLog(), NullProgress(), nullptr).error().code,
            ErrorCode::kNotFound);
}

}  // namespace
}  // namespace msprobe::app
