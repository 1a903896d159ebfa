// Use cases over many ranks with many threads write what one thread writes; `make tsan` watches.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>

#include "app/analysis_app.h"
#include "app/compare_app.h"
#include "app/merge_app.h"
#include "app/ranks_app.h"
#include "base/file.h"
#include "formats/tensor_file.h"

namespace msprobe::app {
namespace {

namespace fs = std::filesystem;

// Six ranks of eight tensors; on rank 4 tensor 3 is twice what it should be.
class ThreadsTest : public testing::Test {
 protected:
  static constexpr int kRanks = 6, kTensors = 8;
  ThreadsTest() {
    std::string pattern = (fs::temp_directory_path() / "msprobe_threads_XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    for (int rank = 0; rank < kRanks; ++rank) {
      Write("t/rank" + std::to_string(rank), rank == 4);
      Write("g/rank" + std::to_string(rank), false);
    }
  }
  ~ThreadsTest() override { fs::remove_all(root_); }

  void Write(const std::string& name, bool wrong) const {
    const std::string folder = JoinPath(root_, name);
    fs::create_directories(JoinPath(folder, "dump_tensor_data"));
    std::string data;
    for (int i = 0; i < kTensors; ++i) {
      const std::array<float, 3> values = {wrong && i == 3 ? 2.0F : 1.0F, 2, static_cast<float>(i)};
      const std::array<int64_t, 1> shape = {3};
      const std::string file = "Torch.relu." + std::to_string(i) + ".npy";
      EXPECT_TRUE(formats::WriteNpy(JoinPath(folder, "dump_tensor_data/" + file), DType::kF32,
                                    shape, std::as_bytes(std::span(values)))
                      .ok());
      data += (i == 0 ? "" : ",") + ("\"Torch.relu." + std::to_string(i)) +
              R"(.forward": {"input_args": [], "input_kwargs": {}, "output": [
                {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [3], "Max": 7.0,
                 "Min": 0.0, "Mean": 2.0, "Norm": )" +
              (wrong && i == 3 ? "NaN" : "4.0") + R"(, "requires_grad": false, "data_name": ")" +
              file + "\"}]}";
    }
    std::ofstream(JoinPath(folder, "dump.json"))
        << R"({"task": "tensor", "level": "L1", "framework": "pytorch", "data": {)" << data << "}}";
  }

  CompareOptions Options(unsigned workers) const {
    const std::string name = JoinPath(root_, "out" + std::to_string(workers));
    CompareOptions options;
    options.target = JoinPath(root_, "t");
    options.golden = JoinPath(root_, "g");
    options.output_dir = name;
    options.json_path = name + ".jsonl";
    options.junit_path = name + ".xml";
    options.html = true;
    options.workers = workers;
    return options;
  }
  static std::string Read(const std::string& path) {
    std::ifstream in(path);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
  static std::vector<std::string> Lines(const std::string& path) {
    std::istringstream in(Read(path));
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    std::sort(lines.begin(), lines.end());
    return lines;
  }
  std::string root_;
};

TEST_F(ThreadsTest, ReportsOfManyRanksAreThoseOfOneThread) {
  const auto one = Compare(Options(1), NullLog(), NullProgress(), nullptr);
  const auto many = Compare(Options(8), NullLog(), NullProgress(), nullptr);
  ASSERT_TRUE(one.ok() && many.ok());
  ASSERT_EQ(many->ranks.size(), size_t{kRanks});
  EXPECT_EQ(many->counts.total, uint64_t{kRanks * kTensors});
  EXPECT_EQ(many->counts.pass, uint64_t{kRanks * kTensors - 1});
  ASSERT_TRUE(many->first_bad_rank);
  EXPECT_EQ(many->ranks[*many->first_bad_rank].job.rank, "rank4");
  for (size_t i = 0; i < size_t{kRanks}; ++i) {
    EXPECT_EQ(Read(many->ranks[i].reports.at(0)), Read(one->ranks[i].reports.at(0))) << i;
  }
  EXPECT_EQ(Lines(Options(8).json_path), Lines(Options(1).json_path));
  EXPECT_EQ(Read(Options(8).junit_path).size(), Read(Options(1).junit_path).size());
  EXPECT_TRUE(PathExists(many->html_path));
}

TEST_F(ThreadsTest, MergedRanksAreThoseOfOneThread) {
  ASSERT_TRUE(Compare(Options(8), NullLog(), NullProgress(), nullptr).ok());
  for (const unsigned workers : {1u, 8u}) {
    MergeOptions options;
    options.input_dir = Options(8).output_dir;
    options.output_dir = JoinPath(root_, "merged" + std::to_string(workers));
    options.config.apis = {"Torch.relu"};
    options.json_path = options.output_dir + ".jsonl";
    options.workers = workers;
    const auto run = MergeReports(options, NullLog(), nullptr);
    ASSERT_TRUE(run.ok()) << run.error().ToString();
    EXPECT_EQ(run->rows, uint64_t{kTensors});
    EXPECT_EQ(run->ranks.size(), size_t{kRanks});
  }
  EXPECT_EQ(Lines(JoinPath(root_, "merged8.jsonl")), Lines(JoinPath(root_, "merged1.jsonl")));
}

TEST_F(ThreadsTest, SearchesOverManyRanksEndAtTheRankThatIsWrong) {
  CompareOptions differences = Options(8);
  differences.junit_path.clear();
  differences.html = false;
  const auto found = AnalyzeDifferences(differences, NullLog(), NullProgress(), nullptr);
  ASSERT_TRUE(found.ok()) << found.error().ToString();
  ASSERT_EQ(found->first.size(), 1u);
  EXPECT_EQ(found->first[0].rank, 4);
  EXPECT_EQ(found->first[0].entry, "Torch.relu.3.forward");

  OverflowOptions overflow;
  overflow.input_dir = JoinPath(root_, "t");
  overflow.output_dir = JoinPath(root_, "overflow");
  overflow.workers = 8;
  const auto bad = CheckOverflow(overflow, NullLog(), NullProgress(), nullptr);
  ASSERT_TRUE(bad.ok()) << bad.error().ToString();
  EXPECT_EQ(bad->ranks.size(), size_t{kRanks});

  RanksOptions ranks;
  ranks.input_dir = JoinPath(root_, "t");
  ranks.output_dir = JoinPath(root_, "ranks");
  ranks.workers = 8;
  const auto read = ReadAcrossRanks(ranks, NullLog(), NullProgress(), nullptr);
  ASSERT_TRUE(read.ok()) << read.error().ToString();
  EXPECT_EQ(read->ranks.size(), size_t{kRanks});
}

// Cancelled from another thread while all are at work: nothing is half written.
TEST_F(ThreadsTest, ACancelledRunLeavesWholeReports) {
  class Canceller final : public ProgressSink {
   public:
    explicit Canceller(CancelToken& token) : token_(token) {}
    void Update(std::string_view, uint64_t, uint64_t) override { token_.Cancel(); }

   private:
    CancelToken& token_;
  };
  CancelToken token;
  Canceller progress(token);
  const auto run = Compare(Options(8), NullLog(), progress, &token);
  for (const auto& file : fs::directory_iterator(Options(8).output_dir)) {
    EXPECT_NE(file.path().extension(), ".tmp") << file.path();
  }
  EXPECT_TRUE(!run.ok() || run->ranks.size() == size_t{kRanks});
}

}  // namespace
}  // namespace msprobe::app
