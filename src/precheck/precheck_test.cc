#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "base/file.h"
#include "base/text.h"
#include "json/json.h"
#include "precheck/judge.h"
#include "precheck/metrics.h"
#include "precheck/precision_compare.h"
#include "report/table.h"
#include "tensor/convert.h"

namespace msprobe::precheck {
namespace {

const std::string kData = MSPROBE_TEST_DATA "/precheck";

constexpr std::array<std::string_view, kNumColumns> kKeys = {"bench_dtype",
                                                             "device_dtype",
                                                             "shape",
                                                             "cosine_sim",
                                                             "max_abs_err",
                                                             "rel_err_hundredth",
                                                             "rel_err_thousandth",
                                                             "rel_err_ten_thousandth",
                                                             "error_rate",
                                                             "eb",
                                                             "rmse",
                                                             "small_value_err_ratio",
                                                             "max_rel_error",
                                                             "mean_rel_error",
                                                             "inf_nan_error_ratio",
                                                             "rel_err_ratio",
                                                             "abs_err_ratio",
                                                             "max_ulp_error",
                                                             "mean_ulp_error",
                                                             "ulp_error_proportion"};

// Elements of a dtype from doubles, and the shape they have.
struct Array {
  DType dtype = DType::kF64;
  Shape shape;
  std::vector<std::byte> bytes;

  TensorView view() const { return {bytes.data(), dtype, shape, {}}; }
};

template <class T>
void Push(std::vector<std::byte>& bytes, T value) {
  const auto* p = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), p, p + sizeof(T));
}

void PushElement(Array& a, double x) {
  switch (a.dtype) {
    case DType::kF64:
      return Push(a.bytes, x);
    case DType::kF32:
      return Push(a.bytes, static_cast<float>(x));
    case DType::kF16:
      return Push(a.bytes, FloatToHalf(static_cast<float>(x)));
    case DType::kBF16:
      return Push(a.bytes, FloatToBFloat16(static_cast<float>(x)));
    case DType::kBool:
      return Push(a.bytes, static_cast<uint8_t>(x != 0));
    case DType::kU8:
      return Push(a.bytes, static_cast<uint8_t>(x));
    case DType::kI8:
      return Push(a.bytes, static_cast<int8_t>(x));
    case DType::kI16:
      return Push(a.bytes, static_cast<int16_t>(x));
    case DType::kI32:
      return Push(a.bytes, static_cast<int32_t>(x));
    case DType::kI64:
      return Push(a.bytes, static_cast<int64_t>(x));
    default:
      FAIL() << "no such element here";
  }
}

Array Make(DType dtype, const std::vector<double>& values) {
  Array a{dtype, {static_cast<int64_t>(values.size())}, {}};
  for (const double x : values) PushElement(a, x);
  return a;
}

double Number(const json::Value& v) {
  double x = 0;
  if (v.is_string()) {
    EXPECT_TRUE(ParsePyFloat(v.as_string(), x)) << v.as_string();
    return x;
  }
  if (v.is_bool()) return v.as_bool() ? 1 : 0;
  return v.as_double();
}

// {"dtype", "shape", "data" | "fill", "set"} of metric_pairs/pairs.json.
Array Load(const json::Value& v) {
  Array a;
  a.dtype = *DTypeFromTorchName(v.Find("dtype")->as_string());
  for (const json::Value& n : *v.Find("shape")) a.shape.push_back(n.as_int());
  const auto n = static_cast<size_t>(*NumElements(a.shape));
  if (const json::Value* fill = v.Find("fill"); fill != nullptr) {
    std::map<size_t, double> set;
    if (const json::Value* s = v.Find("set"); s != nullptr) {
      for (auto m = s->members_begin(); m != s->members_end(); ++m)
        set[std::stoul(std::string(m->key))] = Number(m->value);
    }
    for (size_t i = 0; i < n; ++i) PushElement(a, set.contains(i) ? set[i] : Number(*fill));
    return a;
  }
  for (const json::Value& x : *v.Find("data")) {
    if (IsComplex(a.dtype)) {
      for (const json::Value& part : x) Push(a.bytes, static_cast<float>(Number(part)));
    } else {
      PushElement(a, Number(x));
    }
  }
  EXPECT_EQ(a.bytes.size(), n * ItemSize(a.dtype));
  return a;
}

bool Near(std::string_view got, std::string_view want, bool single) {
  if (got == want) return true;
  double a = 0;
  double b = 0;
  if (!ParsePyFloat(got, a) || !ParsePyFloat(want, b)) return false;
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::fabs(a - b) <= std::max((single ? 1e-6 : 1e-12) * std::fabs(b), 1.01e-14);
}

using Cells = std::map<std::string, std::string>;

void Take(const json::Value& object, Cells& out) {
  for (auto m = object.members_begin(); m != object.members_end(); ++m)
    out[std::string(m->key)] = m->value.as_string();
}

// The cells that a released tool gave a pair; none where it raised.
std::optional<Cells> ExpectedCells(const json::Value& want, Standard standard) {
  Cells cells;
  Take(*want.Find("new"), cells);
  const json::Value* old = want.Find("old_differs");
  if (standard == Standard::kOld && old != nullptr) {
    if (old->Find("exception") != nullptr) return std::nullopt;
    Take(*old, cells);
  }
  if (cells.contains("exception")) return std::nullopt;
  // The old release refuses these dtypes; ours compares every class of integers under both
  // spellings.
  const bool narrow = cells["bench_dtype"] == "torch.int8" || cells["bench_dtype"] == "torch.int16";
  if (narrow && standard == Standard::kOld) return std::nullopt;
  return cells;
}

DetailsRow JudgePair(const json::Value& pair, Standard standard) {
  const Array bench = Load(*pair.Find("bench"));
  const Array device = Load(*pair.Find("device"));
  OutputPair p;
  p.api = pair.Find("api")->as_string();
  p.bench_dtype = pair.Find("bench")->Find("dtype")->as_string();
  p.device_dtype = pair.Find("device")->Find("dtype")->as_string();
  p.bench = bench.view();
  p.device = device.view();
  p.float8_input = pair.Find("fp8_input")->as_bool();
  DetailsRow row;
  JudgeOutput(p, standard, row);
  return row;
}

void ExpectCells(const DetailsRow& row, Cells& cells, bool is_ours, const std::string& where) {
  if (is_ours && cells["bench_dtype"].find("float") == std::string::npos) return;
  if (cells["bench_dtype"] == "torch.int16") return;  // the new release compares nothing there
  for (size_t k = 0; k < kNumColumns; ++k) {
    const Column c = static_cast<Column>(k);
    const bool share =
        c == Column::kHundredth || c == Column::kThousandth || c == Column::kTenThousandth;
    if (is_ours && (share || c == Column::kMaxAbs)) continue;
    std::string text = CellText(row.cells[k], NumberFormat{14});
    if (text == " ") text.clear();
    const std::string& expected = cells[std::string(kKeys[k])];
    // Our benchmark rows also say whether NaN and infinity agree.
    if (c == Column::kInfNan && expected.empty()) continue;
    EXPECT_TRUE(Near(text, expected, cells["bench_dtype"] == "torch.float32"))
        << where << " " << kKeys[k] << ": got " << text << ", expected " << expected;
  }
}

// Every cell of the details row of every fixed pair, for both spellings: 102 pairs.
TEST(MetricPairs, CellsAndStatusesAreThoseOfTheGoldenFile) {
  const auto pairs = json::ParseDocumentFile(kData + "/metric_pairs/pairs.json");
  const auto expected = json::ParseDocumentFile(kData + "/metric_pairs/expected.json");
  ASSERT_TRUE(pairs.ok() && expected.ok());
  int checked = 0;
  for (const json::Value& pair : pairs->root()) {
    const std::string id(pair.Find("id")->as_string());
    const json::Value& want = *expected->root().Find(id);
    const json::Value* ours = want.Find("ours");
    for (const Standard standard : {Standard::kNew, Standard::kOld}) {
      std::optional<Cells> cells = ExpectedCells(want, standard);
      if (!cells) continue;
      const DetailsRow row = JudgePair(pair, standard);
      const std::string where =
          fmt::format("{} {} {}", id, standard == Standard::kNew ? "new" : "old",
                      pair.Find("note")->as_string());
      std::string got(StatusText(row.status, standard));
      if (ours != nullptr && got == "Warning") got = "warning";
      EXPECT_EQ(got, ours != nullptr ? std::string(ours->Find("status")->as_string())
                                     : (*cells)["status"])
          << where << ": " << row.message;
      ++checked;
      ExpectCells(row, *cells, ours != nullptr, where);
    }
  }
  EXPECT_GE(checked, 190);
}

class CompareCase : public testing::TestWithParam<std::string> {};

std::vector<std::string> Cases() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(kData)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("compare_")) out.push_back(name);
  }
  std::sort(out.begin(), out.end());
  return out;
}

// Verdict, algorithm and order of every row and API of the golden comparisons.
TEST_P(CompareCase, VerdictsAreThoseOfTheGoldenFile) {
  const std::string folder = kData + "/" + GetParam();
  const auto expected = json::ParseDocumentFile(folder + "/expected.json");
  ASSERT_TRUE(expected.ok());
  const auto npu = ReadDetails(folder + "/npu.csv");
  const auto gpu = ReadDetails(folder + "/gpu.csv");
  if (expected->root().Find("ours_exit")->as_int() != 0) {
    EXPECT_FALSE(npu.ok() && gpu.ok());
    return;
  }
  ASSERT_TRUE(npu.ok()) << npu.error().ToString();
  ASSERT_TRUE(gpu.ok()) << gpu.error().ToString();
  const PrecisionComparison got = JudgeDetails(*npu, *gpu, Standard::kNew);
  std::map<std::string, std::vector<const JudgedRow*>> rows;
  for (const JudgedRow& row : got.rows) rows[row.name].push_back(&row);
  std::map<std::string, size_t> taken;
  for (const json::Value& want : *expected->root().Find("rows")) {
    const std::string name(want.Find("name")->as_string());
    const size_t k = taken[name]++;
    ASSERT_LT(k, rows[name].size()) << name << " is absent";
    const JudgedRow& row = *rows[name][k];
    EXPECT_EQ(StatusText(row.status, Standard::kNew), want.Find("ours")->as_string())
        << name << ": " << row.message;
    if (const json::Value* algorithm = want.Find("algorithm"); algorithm != nullptr) {
      EXPECT_EQ(row.algorithm.has_value() ? AlgorithmName(*row.algorithm) : " ",
                algorithm->as_string())
          << name;
    }
    EXPECT_TRUE(row.status != Status::kSkip || !row.message.empty()) << name;
  }
  std::map<std::string, const ApiVerdict*> apis;
  for (const ApiVerdict& api : got.apis) apis[api.name] = &api;
  for (const json::Value& want : *expected->root().Find("apis")) {
    const std::string name(want.Find("name")->as_string());
    const json::Value& ours = *want.Find("ours");
    if (ours.is_string()) {
      EXPECT_FALSE(apis.contains(name));
      continue;
    }
    ASSERT_TRUE(apis.contains(name)) << name;
    EXPECT_EQ(StatusText(apis[name]->forward, Standard::kNew), ours[0].as_string()) << name;
    EXPECT_EQ(StatusText(apis[name]->backward, Standard::kNew), ours[1].as_string()) << name;
  }
}

// Ratio cells of judged rows equal those that the released tools wrote, to 1e-12: benchmark rows
// the new one's, others the old one's.
TEST_P(CompareCase, RatioCellsAreThoseOfTheReleasedTools) {
  const std::string folder = kData + "/" + GetParam();
  const auto npu = ReadDetails(folder + "/npu.csv");
  const auto gpu = ReadDetails(folder + "/gpu.csv");
  if (!npu.ok() || !gpu.ok()) return;
  std::map<std::string, std::vector<std::string>> by_spelling[2];
  for (const int old : {0, 1}) {
    const auto table =
        report::ReadCsv(fmt::format("{}/upstream_{}_details.csv", folder, old ? "old" : "new"));
    if (!table.ok()) continue;
    for (const auto& row : table->rows) by_spelling[old].try_emplace(row[0], row);
  }
  const PrecisionComparison result = JudgeDetails(*npu, *gpu, Standard::kNew);
  std::string written = PrecisionDetailsHead(false);
  for (const JudgedRow& row : result.rows) AppendPrecisionRow(written, row, NumberFormat{14});
  const std::string path = testing::TempDir() + "/precision_" + GetParam() + ".csv";
  auto file = AtomicFile::Create(path);
  ASSERT_TRUE(file.ok() && file->Write(written).ok() && file->Commit().ok());
  const auto ours = report::ReadCsv(path);
  ASSERT_TRUE(ours.ok()) << ours.error().ToString();
  ASSERT_EQ(ours->columns.size(), 28u);
  ASSERT_EQ(ours->rows.size(), result.rows.size());
  for (size_t r = 0; r < ours->rows.size(); ++r) {
    const JudgedRow& judged = result.rows[r];
    if (!judged.algorithm.has_value() || judged.status == Status::kSkip) continue;
    const auto& table = by_spelling[*judged.algorithm == Algorithm::kBenchmark ? 0 : 1];
    const auto it = table.find(judged.name);
    if (it == table.end() || it->second[26] != AlgorithmName(*judged.algorithm)) continue;
    for (size_t k = 1; k < 25; ++k) {
      if (k == 11 || k == 12) continue;  // NaN and infinity are judged for every row of ours
      if (it->second[25] != ours->rows[r][25] && k % 2 == 0) continue;
      EXPECT_TRUE(Near(ours->rows[r][k], it->second[k], false))
          << judged.name << " " << ours->columns[k] << ": got '" << ours->rows[r][k]
          << "', expected '" << it->second[k] << "'";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, CompareCase, testing::ValuesIn(Cases()),
                         [](const auto& param) { return param.param; });

// The numbered examples of the metric definitions.
TEST(WorkedMetrics, CosineMaximumAndShares) {
  const auto figures = [](const std::vector<double>& b, const std::vector<double>& d) {
    const Array x = Make(DType::kF64, b);
    const Array y = Make(DType::kF64, d);
    return FiguresOf(x.view(), y.view());
  };
  EXPECT_NEAR(figures({1, 2, 3}, {1, 2, 3.3}).cosine, 0.9989880702160843, 1e-12);
  EXPECT_EQ(figures({1, 0}, {0, 1}).cosine, 0.0);
  EXPECT_NEAR(figures({1, 2}, {-1, -2}).cosine, -1.0, 1e-12);
  EXPECT_TRUE(std::isnan(figures({1, 2}, {1, std::nan("")}).cosine));
  EXPECT_NEAR(figures({1e-200, 2e-200}, {1e-200, 2e-200}).cosine, 1.0, 1e-12);
  EXPECT_NEAR(figures({1e200, 2e200}, {2e200, 4e200}).cosine, 1.0, 1e-12);
}

TEST(WorkedMetrics, RelativeErrorsOfTheBenchmarkAlgorithm) {
  const double inf = std::numeric_limits<double>::infinity();
  const Array b = Make(DType::kF64, {1, -4, 0x1p-20, 0, inf});
  const Array d = Make(DType::kF32, {1.001, -4, 0x1p-19, 0, inf});
  const Figures f = FiguresOf(b.view(), d.view());
  EXPECT_EQ(f.small, 2u);
  EXPECT_EQ(f.inf_nan, 1u);
  EXPECT_NEAR(f.max_rel, 0.0010000467300415037, 1e-15);
  EXPECT_NEAR(f.mean_rel, 0.0005000233650207518, 1e-15);
}

// 2^-12 is small (at most 2^-10); off by 2^-18 it is within 2^-16 and far beyond 1e-16, off by
// 2^-14 beyond both.
TEST(WorkedMetrics, CorrectedToleranceOfSmallValues) {
  const Array b = Make(DType::kF32, {0x1p-12, 0x1p-12, 0x1p-12});
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const Array d = Make(dtype, {0x1p-12, 0x1p-12 + 0x1p-18, 0x1p-12 + 0x1p-14});
    const Figures original = FiguresOf(b.view(), d.view());
    EXPECT_EQ(original.small, 3u);
    EXPECT_EQ(original.small_errors, 2u);
    const Figures corrected = FiguresOf(b.view(), d.view(), 0, SmallValues::kCorrected);
    EXPECT_EQ(corrected.small_errors, 1u);
    EXPECT_EQ(corrected.small_errors_absolute, 1u);
  }
  EXPECT_EQ(SmallValueToleranceBenchmark("torch.float32", SmallValues::kCorrected), 0x1p-30);
}

TEST(WorkedMetrics, ErrorBalanceRoundsTheReferenceFirst) {
  const Array b = Make(DType::kF32, {1.0004, 2, 3});
  const Array d = Make(DType::kF16, {1.0, 2.0, 3.01});
  EXPECT_NEAR(FiguresOf(b.view(), d.view()).balance, 1.0 / 3, 1e-15);
}

TEST(WorkedMetrics, UnitsInTheLastPlace) {
  const Array b32 = Make(DType::kF64, {1, 1.5, 0, 1000});
  const Array d32 = Make(DType::kF32, {std::nextafter(1.0f, 2.0f), 1.5, 0x1p-24, 1000.001});
  const Figures f32 = FiguresOf(b32.view(), d32.view());
  EXPECT_EQ(f32.max_ulp, 16);
  EXPECT_EQ(f32.mean_ulp, 4.375);
  EXPECT_EQ(f32.over_ulp, 0u);
  const Array b16 = Make(DType::kF32, {1, 1.5, 0, 2e-5, 1000});
  const Array d16 = Make(DType::kF16, {1.0009765625, 1.5, 0x1p-11, 2.1e-5, 1001});
  const Figures f16 = FiguresOf(b16.view(), d16.view());
  EXPECT_NEAR(f16.max_ulp, 16.455688, 1e-5);
  EXPECT_NEAR(f16.mean_ulp, 3.9911377, 1e-6);
  EXPECT_EQ(f16.over_ulp, 2u);
  const Array bbf = Make(DType::kF32, {1, 1.5, 0, 1000});
  const Array dbf = Make(DType::kBF16, {1.0078125, 1.5, 0x1p-8, 1008});
  const Figures fbf = FiguresOf(bbf.view(), dbf.view());
  EXPECT_EQ(fbf.mean_ulp, 0.875);
  EXPECT_EQ(fbf.over_ulp, 1u);
  // Example of 8-bit floats: signed errors 1, 1, -0.34375, 1, -2, -978; their magnitudes count.
  const Array b8 = Make(DType::kF64, {1, 20, 300, -1, 0});
  Array d8{DType::kF8E4M3FN, {5}, {}};
  for (const int bits : {0x39, 0x5C, 0x78, 0xBA, 0x00})
    Push(d8.bytes, static_cast<uint8_t>(bits));  // 1.125, 24, 256, -1.25, 0
  const Figures f8 = FiguresOf(b8.view(), d8.view());
  EXPECT_EQ(f8.max_ulp, 978);
  EXPECT_NEAR(f8.mean_ulp, (1 + 1 + 0.34375 + 2 + 978) / 5, 1e-12);
  const double inf = std::numeric_limits<double>::infinity();
  const Array both = Make(DType::kF64, {inf, 1});
  const Array same = Make(DType::kF32, {inf, 1});
  EXPECT_TRUE(std::isnan(FiguresOf(both.view(), same.view()).max_ulp));
}

TEST(WorkedMetrics, InfNanRateOverTheNonFiniteElements) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::nan("");
  const auto rate = [](DType bt, const std::vector<double>& b, DType dt,
                       const std::vector<double>& d) {
    const Array x = Make(bt, b);
    const Array y = Make(dt, d);
    const Figures f = FiguresOf(x.view(), y.view());
    return static_cast<double>(f.inf_nan_errors) / static_cast<double>(f.inf_nan);
  };
  EXPECT_EQ(rate(DType::kF64, {1, 1}, DType::kF32, {inf, 1}), 1.0);
  EXPECT_EQ(rate(DType::kF64, {nan, nan, inf, 1, 2}, DType::kF32, {nan, 1, inf, inf, 2}), 0.5);
  EXPECT_NEAR(rate(DType::kF32, {70000, 65519, 60000}, DType::kF16, {inf, inf, inf}), 1.0 / 3,
              1e-15);
}

// precheck.md R10, which earlier releases call an error: infinity and NaN agree, the rest is equal.
TEST(WorkedMetrics, AgreeingNanAndInfinityAreMasked) {
  const std::vector<double> bench = {1, INFINITY, NAN, 2};
  const std::vector<float> same = {1, INFINITY, NAN, 2};
  const std::vector<float> other = {1, -INFINITY, NAN, 2};
  const Shape shape = {4};
  OutputPair pair;
  pair.api = "foo";
  pair.bench_dtype = "torch.float64";
  pair.device_dtype = "torch.float32";
  pair.bench = {reinterpret_cast<const std::byte*>(bench.data()), DType::kF64, shape, {}};
  for (const std::vector<float>* device : {&same, &other}) {
    pair.device = {reinterpret_cast<const std::byte*>(device->data()), DType::kF32, shape, {}};
    for (const Standard standard : {Standard::kOld, Standard::kNew}) {
      DetailsRow row;
      JudgeOutput(pair, standard, row);
      EXPECT_EQ(row.status, device == &same ? Status::kPass : Status::kError) << row.message;
    }
  }
}

TEST(Dropout, IsJudgedByItsZeros) {
  const auto judge = [](size_t n, size_t bench_zeros, size_t device_zeros) {
    std::vector<double> b(n, 1.0);
    std::vector<double> d(n, 1.0);
    std::fill_n(b.begin(), bench_zeros, 0.0);
    std::fill_n(d.begin(), device_zeros, 0.0);
    const Array x = Make(DType::kF64, b);
    const Array y = Make(DType::kF32, d);
    OutputPair pair{"dropout", "torch.float64", "torch.float32", x.view(), y.view(), false};
    DetailsRow row;
    JudgeDropout(pair, row);
    return row.status;
  };
  EXPECT_EQ(judge(200, 20, 30), Status::kPass);
  EXPECT_EQ(judge(200, 20, 45), Status::kError);
  EXPECT_EQ(judge(99, 0, 99), Status::kPass);
}

TEST(RollUp, TheWorstStatusWins) {
  using S = Status;
  EXPECT_EQ(Worst(std::array{S::kError, S::kWarning}, S::kPass), S::kError);
  EXPECT_EQ(Worst(std::array{S::kSkip, S::kPass}, S::kPass), S::kPass);
  EXPECT_EQ(Worst(std::array{S::kSkip}, S::kSkip), S::kSkip);
  EXPECT_EQ(Worst({}, S::kPass), S::kNotRun);
}

TEST(Cells, NumbersInBothForms) {
  DetailsRow row;
  row.SetDouble(Column::kRmse, 8.657570994436986e-05);
  EXPECT_EQ(CellText(row[Column::kRmse], {14}), "0.00008657570994");
  EXPECT_EQ(CellText(row[Column::kRmse], {}), "8.6575709944369857e-05");
  row.SetSingleOrDouble(Column::kMaxRel, 0.007782101, true);
  EXPECT_EQ(CellText(row[Column::kMaxRel], {14}), "0.007782101");
  row.SetShare(Column::kSmallValue, 0, 0);
  EXPECT_EQ(CellText(row[Column::kSmallValue], {14}), "0");
}

TEST(CsvRecord, QuotesAndNeutralises) {
  std::string out;
  const std::array<std::string_view, 4> cells = {"(2, 3)", "a\"b", "=1+2", "-0.5"};
  AppendCsvRecord(out, cells);
  EXPECT_EQ(out, "\"(2, 3)\",\"a\"\"b\",'=1+2,-0.5\r\n");
}

TEST(ReadDetails, SaysWhichColumnsAreMissing) {
  const std::string path = testing::TempDir() + "/missing.csv";
  auto file = AtomicFile::Create(path);
  ASSERT_TRUE(file.ok() && file->Write("API Name,Status\nx,pass\n").ok() && file->Commit().ok());
  const auto table = ReadDetails(path);
  ASSERT_FALSE(table.ok());
  EXPECT_EQ(table.error().code, ErrorCode::kMalformed);
  EXPECT_NE(table.error().message.find("均方根误差"), std::string::npos);
}

TEST(ReadDetails, ReadsEnglishTitlesInAnyOrder) {
  std::string header;
  std::string row;
  const auto titles = DetailsHeader(true);
  for (size_t k = titles.size(); k-- > 0;) {
    if (!header.empty()) {
      header += ',';
      row += ',';
    }
    header += titles[k];
    row += k == 0    ? "Torch.a.0.forward.output.0"
           : k == 2  ? "torch.float32"
           : k == 21 ? "Warning"
           : k == 11 ? "0.25"
                     : " ";
  }
  const std::string path = testing::TempDir() + "/english.csv";
  auto file = AtomicFile::Create(path);
  ASSERT_TRUE(file.ok() && file->Write(header + "\n" + row + "\n").ok() && file->Commit().ok());
  const auto table = ReadDetails(path);
  ASSERT_TRUE(table.ok()) << table.error().ToString();
  ASSERT_EQ(table->rows.size(), 1u);
  EXPECT_EQ(table->rows[0].name, "Torch.a.0.forward.output.0");
  EXPECT_EQ(table->rows[0].status, Status::kWarning);
  EXPECT_FALSE(table->rows[0][Column::kRmse].blank);
  EXPECT_EQ(table->rows[0][Column::kRmse].value, 0.25);
  EXPECT_TRUE(table->rows[0][Column::kMaxRel].blank);
}

}  // namespace
}  // namespace msprobe::precheck
