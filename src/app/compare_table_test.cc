#include "app/compare_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "app/compare_text.h"

namespace msprobe::app {
namespace {

using compare::CellValue;
using compare::Face;
using compare::Gate;
using compare::Leaf;
using compare::Mode;
using compare::Row;
using compare::Rule;
using report::Cell;
using ::testing::ElementsAre;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

CellValue Num(double d) { return CellValue::Double(d); }

CellValue Txt(std::string_view t) { return CellValue::Text(t); }

std::string Show(const Cell& c) {
  switch (c.kind) {
    case Cell::Kind::kEmpty:
      return "<empty>";
    case Cell::Kind::kText:
      return "'" + std::string(c.text) + "'";
    case Cell::Kind::kDouble:
      return std::to_string(c.d);
    case Cell::Kind::kInt:
      return std::to_string(c.i);
    case Cell::Kind::kUint:
      return std::to_string(c.u) + "u";
    case Cell::Kind::kBool:
      return c.b ? "True" : "False";
  }
  return "?";
}

// One row of two leaves; the cell under a column, shown with its kind.
struct OneRow {
  OneRow(Mode mode, Face f) : face(f) {
    comparison.mode = mode;
    for (Leaf* leaf : {&target, &golden}) {
      leaf->name = "Torch.a.0.forward.input.0";
      leaf->dtype = "torch.float32";
      leaf->shape = "[2]";
      leaf->max = leaf->min = leaf->mean = leaf->norm = Num(1);
      leaf->md5 = "8ba71454";
      leaf->data_name = "a.pt";
      leaf->requires_grad = Leaf::Grad::kFalse;
    }
    comparison.rows.emplace_back();
    row().target = &target;
    row().golden = &golden;
  }
  Row& row() { return comparison.rows.front(); }
  std::string At(std::string_view column) {
    CompareTable table(comparison, face);
    const auto cells = table.Cells(0);
    EXPECT_EQ(cells.size(), table.columns().size());
    for (size_t i = 0; i < cells.size(); ++i) {
      if (table.columns()[i] == column) return Show(cells[i]);
    }
    return "no column";
  }
  Face face;
  Leaf target, golden;
  compare::Comparison comparison;
};

// compare.md 6.
TEST(CompareColumns, Md5OfBothFaces) {
  EXPECT_THAT(CompareColumns(Mode::kMd5, Face::kOld, false),
              ElementsAre("NPU Name", "Bench Name", "NPU Dtype", "Bench Dtype", "NPU Tensor Shape",
                          "Bench Tensor Shape", "NPU Requires_grad", "Bench Requires_grad",
                          "NPU MD5", "BENCH MD5", "Requires_grad Consistent", "Result"));
  EXPECT_EQ(CompareColumns(Mode::kMd5, Face::kNew, true).back(), "NPU_Stack_Info");
  EXPECT_EQ(CompareColumns(Mode::kMd5, Face::kNew, true)[12], "Err_message");
}

TEST(CompareColumns, TensorEndsWithDataNameAfterTheStack) {
  const auto old_face = CompareColumns(Mode::kTensor, Face::kOld, true);
  ASSERT_EQ(old_face.size(), 27u);
  EXPECT_THAT(std::vector(old_face.begin() + 22, old_face.end()),
              ElementsAre("Requires_grad Consistent", "Accuracy Reached or Not", "Err_message",
                          "NPU_Stack_Info", "Data_name"));
  EXPECT_EQ(CompareColumns(Mode::kTensor, Face::kNew, false)[23], "Result");
}

TEST(CompareColumns, StatisticsHaveTheSpelledHeaders) {
  const auto columns = CompareColumns(Mode::kStatistics, Face::kNew, false);
  ASSERT_EQ(columns.size(), 27u);
  EXPECT_THAT(std::vector(columns.begin() + 8, columns.begin() + 16),
              ElementsAre("Max diff", "Min diff", "Mean diff", "L2norm diff", "MaxRelativeErr",
                          "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr"));
}

// compare.md 8.1: old face.
TEST(CompareTable, OldStatisticsAreNumbersAndPercentTexts) {
  OneRow t(Mode::kStatistics, Face::kOld);
  t.target.max = Num(3);
  t.golden.max = Num(2.99);
  t.target.min = Num(3);
  t.golden.min = Num(0);
  t.target.mean = Num(kNan);
  t.golden.mean = Num(1);
  t.target.norm = Txt("floor");
  t.golden.norm = Txt("floor");
  EXPECT_EQ(t.At("Max diff"), std::to_string(3 - 2.99));
  EXPECT_EQ(t.At("MaxRelativeErr"),
            "'0.3344481605351099%'");  // the worked example of compare.md 25.2
  EXPECT_EQ(t.At("Min diff"), "3.000000");
  EXPECT_EQ(t.At("MinRelativeErr"), "'N/A'");
  EXPECT_EQ(t.At("Mean diff"), "'Nan'");
  EXPECT_EQ(t.At("MeanRelativeErr"), "'Nan'");
  EXPECT_EQ(t.At("L2norm diff"), "'N/A'");
  EXPECT_EQ(t.At("NormRelativeErr"), "'N/A'");
  EXPECT_EQ(t.At("NPU mean"), "'Nan'");
  t.target.max = Num(kInf);
  EXPECT_EQ(t.At("MaxRelativeErr"), "'inf%'");
}

// compare.md 8.2: new face, all text.
TEST(CompareTable, NewStatisticsAreTexts) {
  OneRow t(Mode::kStatistics, Face::kNew);
  EXPECT_EQ(t.At("Max diff"), "'N/A'");  // nothing was compared
  t.row().has_statistics = true;
  t.golden.max = Num(2);
  t.target.mean = Txt("word");
  t.target.norm = Num(-kInf);
  EXPECT_EQ(t.At("Max diff"), "'-1.0'");
  EXPECT_EQ(t.At("MaxRelativeErr"), "'50.0%'");
  EXPECT_EQ(t.At("Min diff"), "'0'");
  EXPECT_EQ(t.At("MinRelativeErr"), "'0'");
  EXPECT_EQ(t.At("Mean diff"), "'Diff'");
  EXPECT_EQ(t.At("MeanRelativeErr"), "'Diff'");
  EXPECT_EQ(t.At("L2norm diff"), "'-inf'");
  EXPECT_EQ(t.At("NormRelativeErr"), "'-inf'");
  t.golden.max = Num(0);
  t.target.min = Num(kNan);
  t.target.mean = Txt("N/A");
  EXPECT_EQ(t.At("Max diff"), "'1.0'");
  EXPECT_EQ(t.At("MaxRelativeErr"), "'inf'");
  EXPECT_EQ(t.At("Min diff"), "'Nan'");
  EXPECT_EQ(t.At("MinRelativeErr"), "'Nan'");
  EXPECT_EQ(t.At("Mean diff"), "'N/A'");
  EXPECT_EQ(t.At("MeanRelativeErr"), "'N/A'");
}

// compare.md 7.2, 7.3.
TEST(CompareTable, TensorCellsByGate) {
  OneRow t(Mode::kTensor, Face::kNew);
  t.row().metrics.Edit() = {.cosine = 0.999953,
                            .euclidean = 0.1 + 0.2,
                            .max_abs = 1e-13,
                            .max_rel = kNan,
                            .below_thousandth = 2.0 / 3};
  EXPECT_EQ(t.At("Cosine"), std::to_string(0.999953));
  EXPECT_EQ(t.At("MaxAbsErr"), "0.000000");  // below 5e-13
  EXPECT_EQ(t.At("MaxRelativeErr"), "'Nan'");
  t.row().metrics.Edit().cosine_case = metrics::CosineCase::kTargetZero;
  EXPECT_EQ(t.At("Cosine"), "'Nan'");
  for (const auto& [gate, text] : {std::pair(Gate::kShapes, "'shape unmatched'"),
                                   {Gate::kNonFinitePositions, "'N/A'"},
                                   {Gate::kUnreadable, "'unsupported'"},
                                   {Gate::kNoGoldenRow, "'unsupported'"}}) {
    t.row().gate = gate;
    EXPECT_EQ(t.At("Cosine"), text);
    EXPECT_EQ(t.At("Five Thousandths Err Ratio"), text);
  }
  t.row().gate = Gate::kZeroDim;
  t.row().metrics.Edit().max_abs = 0.5;
  EXPECT_EQ(t.At("EucDist"), "'unsupported'");
  EXPECT_EQ(t.At("MaxAbsErr"), "0.500000");
}

TEST(CompareTable, CellsOfOneSideAndOfNullLeaves) {
  OneRow t(Mode::kTensor, Face::kOld);
  t.row().golden = nullptr;
  t.target.data_name = "";
  EXPECT_EQ(t.At("Bench Name"), "'N/A'");
  EXPECT_EQ(t.At("Bench max"), "'N/A'");
  EXPECT_EQ(t.At("Data_name"), "'['-1', 'N/A']'");
  t.target.is_null = true;
  EXPECT_EQ(t.At("NPU Dtype"), "'None'");
  t.face = Face::kNew;
  EXPECT_EQ(t.At("NPU Dtype"), "'N/A'");
  t.target.max = {};
  EXPECT_EQ(t.At("NPU max"), "'None'");
}

TEST(CompareTable, IntegersBeyond64BitsKeepTheirDigits) {
  OneRow t(Mode::kStatistics, Face::kNew);
  t.target.max = CellValue::BigInt("18446744073709551615");
  t.target.min = CellValue::BigInt("-99999999999999999999");
  EXPECT_EQ(t.At("NPU max"), "18446744073709551615u");
  EXPECT_EQ(t.At("NPU min"), "'-99999999999999999999'");
}

// compare.md 12, 7.4: the old face glues its parts.
TEST(ErrMessage, OldTensorRows) {
  OneRow t(Mode::kTensor, Face::kOld);
  EXPECT_EQ(t.At("Err_message"), "<empty>");
  t.row().golden = nullptr;
  t.row().gate = Gate::kNoGoldenRow;
  t.row().grad_consistent = false;
  EXPECT_EQ(ErrMessage(t.row(), Mode::kTensor, Face::kOld),
            "Requires_grad inconsistent. Bench api/module unmatched.");
  t.row().grad_consistent = true;  // a scalar
  t.row().gate = Gate::kNoTargetFile;
  EXPECT_EQ(ErrMessage(t.row(), Mode::kTensor, Face::kOld),
            "No bench data matched.NPU does not have data file.");
  t.row().golden = &t.golden;
  t.row().gate = Gate::kUnreadable;
  EXPECT_EQ(ErrMessage(t.row(), Mode::kTensor, Face::kOld),
            "Dump file: ['a.pt', 'a.pt'] not found or read failed.");
  t.row().gate = Gate::kCompared;
  t.row().fuzzy = true;
  EXPECT_EQ(ErrMessage(t.row(), Mode::kTensor, Face::kOld),
            " Fuzzy matching data, the comparison accuracy may be affected.");
}

TEST(ErrMessage, ZeroDimNoteStandsSixteenTimesOnTheOldFace) {
  OneRow t(Mode::kTensor, Face::kOld);
  t.row().gate = Gate::kZeroDim;
  const std::string note = GateText(t.row(), Face::kOld);
  EXPECT_TRUE(note.ends_with("'Five Thousandths Err Ratio'. "));
  EXPECT_EQ(ErrMessage(t.row(), Mode::kTensor, Face::kOld).size(), 16 * note.size());
  t.row().metrics.Edit().max_abs = t.row().metrics.Edit().max_rel =
      kNan;  // golden case t_naninf: d0*4, an, rn, four times
  const std::string text = ErrMessage(t.row(), Mode::kTensor, Face::kOld);
  EXPECT_TRUE(text.starts_with(note + note + note + note + "Cannot compare by MaxAbsError"));
  EXPECT_EQ(text.size(), 4 * text.find(note, 4 * note.size()));
}

TEST(ErrMessage, HighlightReasonsFollowLineFeeds) {
  OneRow t(Mode::kStatistics, Face::kOld);
  t.row().result = compare::OldResult::kWarning;
  t.row().highlights.push_back(compare::Highlight::kH7);
  t.row().highlights.push_back(compare::Highlight::kH9);
  EXPECT_EQ(ErrMessage(t.row(), Mode::kStatistics, Face::kOld),
            "Need double check api accuracy. \nmaximum relative error exceeds 0.5\nrequires_grad "
            "is inconsistent");
}

TEST(ErrMessage, NewFaceIsAJsonListWithReasonsOfUnmatchedRows) {
  OneRow t(Mode::kTensor, Face::kNew);
  EXPECT_EQ(t.At("Err_message"), "'[]'");
  t.row().verdict = compare::Verdict::kError;
  for (const Rule rule : {Rule::kR2s, Rule::kR7s}) t.row().rules.push_back(rule);
  EXPECT_EQ(ErrMessage(t.row(), Mode::kStatistics, Face::kNew),
            "[\"error: The NormRelativeErr of output is greater than 0.5.\", "
            "\"warning: The norm relative error of output is 10 times that of input.\"]");
  t.row().rules = {};
  t.row().verdict = compare::Verdict::kUnmatched;
  t.row().uncompared = true;
  t.row().gate = Gate::kUnreadable;
  t.row().unreadable.Edit() = "a.pt: \"bad\"";
  EXPECT_EQ(ErrMessage(t.row(), Mode::kTensor, Face::kNew),
            "[\"Dump file: a.pt or a.pt not found or read failed.\", \"a.pt: \\\"bad\\\"\"]");
}

}  // namespace
}  // namespace msprobe::app
