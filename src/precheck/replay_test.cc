// What the replay needs of the core: reproducible inputs, Q rules, the growing files.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/file.h"
#include "precheck/precision_compare.h"
#include "precheck/q_rules.h"
#include "precheck/random_fill.h"
#include "precheck/result_writer.h"

namespace msprobe::precheck {
namespace {

// The known answers that the authors of Philox publish with their code: counter 0, key 0.
TEST(RandomFill, StreamIsPhilox) {
  EXPECT_EQ(StreamWord(0, 0), 0xe169c58d6627e8d5u);
  EXPECT_EQ(StreamWord(0, 1), 0x9b00dbd8bc57ac4cu);
}

TEST(RandomFill, KeyDependsOnSeedNameAndPlace) {
  const uint64_t key = StreamKey(1234, "Torch.add.0", "input_args.0");
  EXPECT_EQ(key, StreamKey(1234, "Torch.add.0", "input_args.0"));
  EXPECT_NE(key, StreamKey(1235, "Torch.add.0", "input_args.0"));
  EXPECT_NE(key, StreamKey(1234, "Torch.add.1", "input_args.0"));
  EXPECT_NE(key, StreamKey(1234, "Torch.add.0", "input_args.1"));
}

TEST(RandomFill, UniformStaysInItsRangeAndFillsIt) {
  std::vector<float> v(10000);
  ASSERT_TRUE(FillUniform(7, DType::kF32, -2, 3, v.size(), reinterpret_cast<std::byte*>(v.data())));
  const auto [low, high] = std::minmax_element(v.begin(), v.end());
  EXPECT_GE(*low, -2);
  EXPECT_LE(*high, 3);
  double sum = 0;
  for (const float x : v) sum += x;
  // Mean 0.5, deviation of the mean 5 / sqrt(12 · 10000) = 0.0144: within five of them.
  EXPECT_NEAR(sum / 10000, 0.5, 0.072);
  EXPECT_LT(*low, -1.99);
  EXPECT_GT(*high, 2.99);
}

TEST(RandomFill, ARangeThatOverflowsIsFilled) {
  const double most = std::numeric_limits<double>::max();
  std::vector<double> v(1000);
  ASSERT_TRUE(
      FillUniform(7, DType::kF64, -most, most, v.size(), reinterpret_cast<std::byte*>(v.data())));
  EXPECT_TRUE(std::all_of(v.begin(), v.end(), [](double x) { return std::isfinite(x); }));
  EXPECT_TRUE(std::any_of(v.begin(), v.end(), [](double x) { return x < -1e307; }));
  EXPECT_TRUE(std::any_of(v.begin(), v.end(), [](double x) { return x > 1e307; }));
}

TEST(RandomFill, IntegersReachBothEnds) {
  std::vector<int8_t> v(1000);
  ASSERT_TRUE(FillIntegers(3, DType::kI8, -2, 4, v.size(), reinterpret_cast<std::byte*>(v.data())));
  for (int8_t x = -2; x <= 2; ++x) {
    // 200 expected, deviation 12.6: within six of them.
    EXPECT_NEAR(static_cast<double>(std::count(v.begin(), v.end(), x)), 200, 76) << int{x};
  }
}

TEST(RandomFill, WholeRangeOf64Bits) {
  std::vector<int64_t> v(1000);
  ASSERT_TRUE(FillIntegers(3, DType::kI64, INT64_MIN, UINT64_MAX, v.size(),
                           reinterpret_cast<std::byte*>(v.data())));
  const auto below = std::count_if(v.begin(), v.end(), [](int64_t x) { return x < 0; });
  EXPECT_NEAR(static_cast<double>(below), 500, 95);  // six deviations
}

TEST(RandomFill, BoolFromItsRange) {
  std::vector<uint8_t> v(100, 7);
  ASSERT_TRUE(
      FillIntegers(3, DType::kBool, 1, 0, v.size(), reinterpret_cast<std::byte*>(v.data())));
  EXPECT_EQ(std::count(v.begin(), v.end(), 1), 100);
  ASSERT_TRUE(
      FillIntegers(3, DType::kBool, 0, 1, v.size(), reinterpret_cast<std::byte*>(v.data())));
  EXPECT_NEAR(static_cast<double>(std::count(v.begin(), v.end(), 1)), 50, 30);
  EXPECT_TRUE(std::all_of(v.begin(), v.end(), [](uint8_t x) { return x <= 1; }));
}

TEST(RandomFill, OtherKindsAreRefused) {
  std::byte b{};
  EXPECT_FALSE(FillUniform(0, DType::kI32, 0, 1, 0, &b));
  EXPECT_FALSE(FillIntegers(0, DType::kF32, 0, 1, 0, &b));
}

class QRules : public testing::Test {
 protected:
  DetailsRow Judge(const std::vector<double>& bench, const std::vector<float>& device,
                   const std::vector<float>* baseline = nullptr, double terms = 1) {
    const Shape shape = {static_cast<int64_t>(bench.size())};
    OutputPair pair;
    pair.api = api_;
    pair.bench_dtype = "torch.float64";
    pair.device_dtype = "torch.float32";
    pair.bench = {reinterpret_cast<const std::byte*>(bench.data()), DType::kF64, shape, {}};
    pair.device = {reinterpret_cast<const std::byte*>(device.data()), DType::kF32, shape, {}};
    DetailsRow row;
    JudgeOutput(pair, Standard::kNew, row);
    TensorView base;
    QContext context;
    context.terms = terms;
    if (baseline != nullptr) {
      base = {reinterpret_cast<const std::byte*>(baseline->data()), DType::kF32, shape, {}};
      context.baseline = &base;
    }
    ApplyQRules(pair, context, row);
    return row;
  }
  std::string api_ = "foo";
};

// 0.01 is what is left of terms near 1e5. Unit of the last element: 2^-24 (0.01 + 8.66e4) =
// 0.00516; an error of 0.01 is 1.9 of them, one of 0.2 is 38.7. Both are far from 0.1 % of 0.01.
TEST_F(QRules, SmallElementsOfSumsAreJudgedAtTheScaleOfTheTerms) {
  const std::vector<double> bench = {1e5, 1e5, 1e5, 0.01};
  EXPECT_EQ(Judge(bench, {1e5f, 1e5f, 1e5f, 0.02f}).status, Status::kError);
  api_ = "matmul";
  const DetailsRow row = Judge(bench, {1e5f, 1e5f, 1e5f, 0.02f});
  EXPECT_EQ(row.status, Status::kPass);
  EXPECT_NE(row.message.find("Q0 rounding explains it: largest error 1.9"), std::string::npos)
      << row.message;
  EXPECT_EQ(Judge(bench, {1e5f, 1e5f, 1e5f, 0.21f}).status, Status::kError);
  // A lost infinity is none of it.
  EXPECT_EQ(Judge({1e5, 1e5, HUGE_VAL, 0.01}, {1e5f, 1e5f, 1e5f, 0.02f}).status, Status::kError);
}

// 1 + 4e-4 beside 1: below the step of 0.001, 3355 units of 2^-24 (|b| + rms) / 1.
TEST_F(QRules, AnErrorThatTheDtypeDoesNotExplain) {
  const DetailsRow row = Judge({1, 1, 1, 1}, {1, 1, 1.0004f, 1});
  EXPECT_EQ(row.status, Status::kError);
  EXPECT_NE(row.message.find("\nQ1 "), std::string::npos);
}

TEST_F(QRules, TwoUlpPass) {
  const float two = std::nextafter(std::nextafter(1.0f, 2.0f), 2.0f);
  const std::vector<float> exact = {1, 1, 1, 1};
  EXPECT_EQ(Judge({1, 1, 1, 1}, {two, two, two, two}).status, Status::kPass);
  EXPECT_EQ(Judge({1, 1, 1, 1}, {two, two, two, two}, &exact).status, Status::kPass);
}

TEST_F(QRules, LongSumsMayBeLessExact) {
  const float off = 1.0f + 600 * 0x1p-23f;  // 600 units at |b| + rms = 2
  EXPECT_EQ(Judge({1, 1}, {off, 1}).status, Status::kError);
  EXPECT_EQ(Judge({1, 1}, {off, 1}, nullptr, 1024).status, Status::kPass);  // 256 + 16 · 32
}

TEST_F(QRules, TheBaselineExplains) {
  const float off = 1.0f + 600 * 0x1p-23f;
  const std::vector<float> as_bad = {1.0f + 300 * 0x1p-23f, 1};
  const std::vector<float> better = {1.0f + 20 * 0x1p-23f, 1};
  EXPECT_EQ(Judge({1, 1}, {off, 1}, &as_bad).status, Status::kPass);
  EXPECT_EQ(Judge({1, 1}, {off, 1}, &better).status, Status::kError);
}

TEST_F(QRules, LostSubnormalsAreAWarning) {
  const std::vector<double> bench = {1e-40, 2e-40};
  const DetailsRow row = Judge(bench, {0, 2e-40f});
  EXPECT_EQ(row.status, Status::kWarning);
  EXPECT_NE(row.message.find("Q3 1 subnormal"), std::string::npos);
  const std::vector<float> same = {0, 2e-40f};
  EXPECT_EQ(Judge(bench, {0, 2e-40f}, &same).status, Status::kPass);
  EXPECT_EQ(Judge(bench, {1e-40f, 2e-40f}).status, Status::kPass);
}

DetailsTable::Row Compared(const std::string& message, Status status) {
  DetailsTable::Row row;
  row.name = "Torch.exp.0.forward.output.0";
  row.device_dtype = "torch.float32";
  row.shape = "(4,)";
  row.message = message;
  row.status = status;
  row.has_status = true;
  for (const Column c :
       {Column::kSmallValue, Column::kRmse, Column::kMaxRel, Column::kMeanRel, Column::kBalance})
    row.Set(c, 0.001);
  return row;
}

TEST(FinalVerdict, AFindingOfOneDeviceCounts) {
  DetailsTable with;
  DetailsTable without;
  with.rows = {Compared(
      "maximum absolute error below 0.001: pass\nQ3 4 subnormal results are zero here: warning",
      Status::kWarning)};
  without.rows = {Compared("", Status::kPass)};
  EXPECT_EQ(JudgeDetails(with, without, Standard::kNew, Rules::kDefault).apis[0].forward,
            Status::kWarning);
  EXPECT_EQ(JudgeDetails(with, without, Standard::kNew, Rules::kBase).apis[0].forward,
            Status::kPass);
  EXPECT_EQ(JudgeDetails(with, with, Standard::kNew, Rules::kDefault).apis[0].forward,
            Status::kPass);
  with.rows[0].message = "Q1 largest error 3355 rounding units, explained 272: error";
  EXPECT_EQ(JudgeDetails(with, without, Standard::kNew, Rules::kDefault).apis[0].forward,
            Status::kError);
}

TEST(FinalVerdict, SamplesKeepTheirOwnStatus) {
  DetailsTable npu;
  DetailsTable gpu;
  npu.rows.resize(2);
  for (size_t k = 0; k < 2; ++k) {
    npu.rows[k].name = k == 0 ? "Torch.rand.0.forward.output.0" : "Torch.rand.1.forward.output.0";
    npu.rows[k].device_dtype = "torch.float32";
    npu.rows[k].has_status = true;
    npu.rows[k].status = k == 0 ? Status::kPass : Status::kError;
    npu.rows[k].message = "random, compared as samples: mean 0.5 and 0.5";
  }
  gpu = npu;
  const auto apis = JudgeDetails(npu, gpu, Standard::kNew, Rules::kDefault).apis;
  EXPECT_EQ(apis[0].forward, Status::kPass);
  EXPECT_EQ(apis[1].forward, Status::kError);
  for (auto& row : npu.rows) row.message = "another text";
  EXPECT_EQ(JudgeDetails(npu, gpu, Standard::kNew, Rules::kDefault).apis[0].forward, Status::kSkip);
}

// In reverse order: a search per row would take 2e10 steps here.
TEST(FinalVerdict, ManyRowsInAnyOrder) {
  constexpr size_t kRows = 200'000;
  const DetailsTable::Row like = Compared("", Status::kPass);
  FinalJudge judge(Standard::kNew, Rules::kDefault);
  const auto row = [&](size_t k) {
    DetailsTable::Row out = like;
    out.name = "Torch.exp." + std::to_string(k) + ".forward.output.0";
    return out;
  };
  for (size_t k = kRows; k-- > 0;) judge.AddGpu(row(k));
  size_t passed = 0;
  const auto count = [&](const JudgedRow& judged) {
    passed += judged.status == Status::kPass;
    return msprobe::Status();
  };
  for (size_t k = 0; k < kRows; ++k) ASSERT_TRUE(judge.JudgeNpu(row(k), count).ok());
  ASSERT_TRUE(judge.Finish(count).ok());
  EXPECT_EQ(passed, kRows);
  EXPECT_EQ(judge.Apis().size(), kRows);
}

class Writer : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = testing::TempDir() + "/precheck_writer_" +
           testing::UnitTest::GetInstance()->current_test_info()->name();
    ASSERT_TRUE(CreateDirectories(dir_).ok());
  }
  static ApiResult Api(const std::string& name, Status status = Status::kPass) {
    ApiResult api{name, status, status == Status::kSkip ? status : Status::kNotRun, "why", {}};
    api.rows.resize(2);
    api.rows[0].name = name + ".forward.output.0";
    api.rows[1].name = name + ".forward.output.1";
    api.rows[0].message = "two\nlines, \"quoted\"";
    for (auto& row : api.rows) row.status = status;
    return api;
  }
  static std::string Text(const std::string& path) { return ReadTextFile(path, 1 << 20).value(); }
  static void Put(const std::string& path, const std::string& text) {
    auto file = AtomicFile::Create(path);
    ASSERT_TRUE(file.ok() && file->Write(text).ok() && file->Commit().ok());
  }
  std::string dir_;
};

TEST_F(Writer, ApisWithoutBaselineRowsAreRunAgain) {
  WriterOptions options;
  options.baseline = true;
  auto writer = ResultWriter::Create(dir_, 0, options);
  ASSERT_TRUE(writer.ok());
  for (const char* name : {"Torch.a.0", "Torch.b.0"}) {
    ApiResult api = Api(name);
    api.baseline_rows = api.rows;
    ASSERT_TRUE(writer->Append(api).ok());
  }
  const std::string baseline = Text(writer->baseline_path());
  EXPECT_EQ(baseline, Text(writer->details_path()));
  // b's rows are lost, the last one in the middle.
  Put(writer->baseline_path(), baseline.substr(0, baseline.find("Torch.b.0") + 12));
  const auto resumed = ResultWriter::Resume(writer->result_path(), false, options);
  ASSERT_TRUE(resumed.ok()) << resumed.error().ToString();
  EXPECT_EQ(resumed->done(), std::vector<std::string>{"Torch.a.0"});
  for (const std::string& path : {resumed->baseline_path(), resumed->details_path()})
    EXPECT_EQ(Text(path), baseline.substr(0, baseline.find("Torch.b.0")));
  EXPECT_EQ(Text(resumed->result_path()).find("Torch.b.0"), std::string::npos);
}

TEST_F(Writer, FilesAfterOneApi) {
  auto writer = ResultWriter::Create(dir_, 0, {});
  ASSERT_TRUE(writer.ok()) << writer.error().ToString();
  ASSERT_TRUE(writer->Append(Api("Torch.a.0")).ok());
  ASSERT_TRUE(writer->Append(Api("Torch.b.0", Status::kSkip)).ok());
  EXPECT_EQ(Text(writer->result_path()),
            "\xEF\xBB\xBF"
            "API name,Forward Test Success,Backward Test Success,Message\r\n"
            "Torch.a.0,pass, \r\nTorch.b.0,SKIP,SKIP,why\r\n");
  const std::string details = Text(writer->details_path());
  EXPECT_NE(details.find("Torch.a.0.forward.output.0, , , ,"), std::string::npos);
  EXPECT_NE(details.find(",pass,\"two\nlines, \"\"quoted\"\"\"\r\n"), std::string::npos);
  EXPECT_EQ(writer->stamp().size(), 14u);
}

TEST_F(Writer, ASecondRunMovesOnToAFreeSecond) {
  auto first = ResultWriter::Create(dir_, 0, {});
  auto second = ResultWriter::Create(dir_, 0, {});
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first->stamp(), second->stamp());
}

// Wherever the last run died, going on gives the files that a run in one piece gives.
TEST_F(Writer, ResumeAtEveryByte) {
  auto writer = ResultWriter::Create(dir_, 0, {});
  ASSERT_TRUE(writer.ok());
  const std::string result = writer->result_path();
  const std::string details = writer->details_path();
  ASSERT_TRUE(writer->Append(Api("Torch.a.0")).ok());
  const size_t result_kept = Text(result).size();
  const size_t details_kept = Text(details).size();
  ASSERT_TRUE(writer->Append(Api("Torch.b.0")).ok());
  const std::string whole_result = Text(result);
  const std::string whole_details = Text(details);
  const auto resume_with = [&](size_t result_size, size_t details_size) {
    Put(result, whole_result.substr(0, result_size));
    Put(details, whole_details.substr(0, details_size));
    auto resumed = ResultWriter::Resume(result, false, {});
    ASSERT_TRUE(resumed.ok()) << resumed.error().ToString();
    const bool both = resumed->done().size() == 2;
    ASSERT_EQ(resumed->done()[0], "Torch.a.0");
    if (!both) {
      ASSERT_TRUE(resumed->Append(Api("Torch.b.0")).ok());
    }
    EXPECT_EQ(Text(result), whole_result) << result_size << " " << details_size;
    EXPECT_EQ(Text(details), whole_details) << result_size << " " << details_size;
  };
  for (size_t n = details_kept; n <= whole_details.size(); ++n) resume_with(result_kept, n);
  for (size_t n = result_kept; n <= whole_result.size(); ++n) resume_with(n, whole_details.size());
}

TEST_F(Writer, ResultsWithoutDetailsAreRunAgain) {
  auto writer = ResultWriter::Create(dir_, 0, {});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->Append(Api("Torch.a.0")).ok());
  const std::string details = Text(writer->details_path());
  ASSERT_TRUE(writer->Append(Api("Torch.b.0")).ok());
  Put(writer->details_path(), details);
  auto resumed = ResultWriter::Resume(writer->result_path(), false, {});
  ASSERT_TRUE(resumed.ok());
  EXPECT_EQ(resumed->done(), std::vector<std::string>{"Torch.a.0"});
  EXPECT_EQ(Text(writer->result_path()).find("Torch.b.0"), std::string::npos);
}

TEST_F(Writer, RetrySkips) {
  auto writer = ResultWriter::Create(dir_, 0, {});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->Append(Api("Torch.a.0", Status::kSkip)).ok());
  ASSERT_TRUE(writer->Append(Api("Torch.b.0")).ok());
  auto kept = ResultWriter::Resume(writer->result_path(), false, {});
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(kept->done().size(), 2u);
  auto retried = ResultWriter::Resume(writer->result_path(), true, {});
  ASSERT_TRUE(retried.ok());
  EXPECT_EQ(retried->done(), std::vector<std::string>{"Torch.b.0"});
  EXPECT_EQ(Text(writer->details_path()).find("Torch.a.0"), std::string::npos);
}

TEST_F(Writer, FilesThatAreNone) {
  const std::string result = dir_ + "/accuracy_checking_result_20260101000000.csv";
  const std::string details = dir_ + "/accuracy_checking_details_20260101000000.csv";
  Put(result, "a,b\r\n");
  Put(details, "a,b\r\n");
  auto wrong = ResultWriter::Resume(result, false, {});
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().code, ErrorCode::kMalformed);
  Put(result, "API name,Forward Test Success,Backward Test Success,Message\r\n\xFF,a,b\r\n");
  auto other = ResultWriter::Resume(result, false, {});
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, ErrorCode::kMalformed);
  EXPECT_NE(other.error().ToString().find(":2"), std::string::npos);
  EXPECT_FALSE(ResultWriter::Resume(dir_ + "/x.csv", false, {}).ok());
}

}  // namespace
}  // namespace msprobe::precheck
