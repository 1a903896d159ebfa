#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cmath>
#include <limits>

#include "report/report_test_util.h"
#include "report/table.h"

namespace msprobe::report {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CsvWriterTest : public ReportTest {
 protected:
  // The file that these rows become.
  std::string Written(const std::vector<std::string>& columns, const std::vector<Row>& rows,
                      CsvOptions options = {}) {
    auto writer = NewCsvWriter(Path("t.csv"), options);
    EXPECT_TRUE(writer->Begin(columns).ok());
    for (const Row& row : rows) EXPECT_TRUE(writer->Row(row, Mark::kNone).ok());
    EXPECT_TRUE(writer->Finish().ok());
    return Content("t.csv");
  }
  std::string OneCell(Cell cell) { return Written({"a", "b"}, {{cell, Cell::Int(1)}}); }
};

// Cells of the golden cases t_worked and s_worked (run "new"), as upstream's csv spells them.
TEST_F(CsvWriterTest, CellsOfTheGoldenCases) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Written({"c"}, {{Cell::Double(1)},
                            {Cell::Double(0)},
                            {Cell::Double(-1.5)},
                            {Cell::Double(2251799813685248)},
                            {Cell::Double(5.4772257804870605)},
                            {Cell::Double(0.991194122753)},
                            {Cell::Int(3)},
                            {Cell::Bool(true)},
                            {Cell::Bool(false)},
                            {Cell::Double(inf)},
                            {Cell::Double(-inf)},
                            {Cell::Text("inf")},
                            {Cell::Text("Nan")},
                            {Cell::Text("0.3344481605351099%")}}),
            "c\n1.0\n0.0\n-1.5\n2251799813685248.0\n5.4772257804870605\n0."
            "991194122753\n3\nTrue\nFalse\n inf\n -inf\ninf\nNan\n"
            "0.3344481605351099%\n");
}

// repr() of Python 3.11 for the same numbers.
TEST_F(CsvWriterTest, DoublesAsPythonPrintsThem) {
  EXPECT_EQ(Written({"c"}, {{Cell::Double(1e16)},
                            {Cell::Double(123456789012345.0)},
                            {Cell::Double(9999999999999998)},
                            {Cell::Double(1e-5)},
                            {Cell::Double(0.0001)},
                            {Cell::Double(-0.0)},
                            {Cell::Double(5e-324)},
                            {Cell::Double(1.7976931348623157e308)},
                            {Cell::Double(0.1)}}),
            "c\n1e+16\n123456789012345.0\n9999999999999998.0\n1e-05\n0.0001\n-0.0\n5e-324\n1."
            "7976931348623157e+308\n0.1\n");
}

TEST_F(CsvWriterTest, IntegersKeepAllDigits) {
  EXPECT_EQ(Written({"i", "u"}, {{Cell::Int(INT64_MIN), Cell::Uint(UINT64_MAX)}}),
            "i,u\n-9223372036854775808,18446744073709551615\n");
}

TEST_F(CsvWriterTest, NanAndNothingAreEmptyCells) {
  EXPECT_EQ(Written({"a", "b", "c"}, {{Cell::Double(std::nan("")), Cell(), Cell::Text("")}}),
            "a,b,c\n,,\n");
}

// RFC 4180, sections 2.5 to 2.7.
TEST_F(CsvWriterTest, QuotesOnlyWhereNeeded) {
  EXPECT_EQ(OneCell(Cell::Text("[2, 2]")), "a,b\n\"[2, 2]\",1\n");
  EXPECT_EQ(OneCell(Cell::Text("say \"x\"")), "a,b\n\"say \"\"x\"\"\",1\n");
  EXPECT_EQ(OneCell(Cell::Text("two\nlines")), "a,b\n\"two\nlines\",1\n");
  EXPECT_EQ(OneCell(Cell::Text("a\rb")), "a,b\n\"a\rb\",1\n");
  EXPECT_EQ(OneCell(Cell::Text("torch.float32; x")), "a,b\ntorch.float32; x,1\n");
}

TEST_F(CsvWriterTest, FormulasGetAnApostrophe) {
  EXPECT_EQ(OneCell(Cell::Text("=1+1")), "a,b\n'=1+1,1\n");
  EXPECT_EQ(OneCell(Cell::Text("@SUM(A1,A2)")), "a,b\n\"'@SUM(A1,A2)\",1\n");
  EXPECT_EQ(OneCell(Cell::Text("File x;-y")), "a,b\n'File x;-y,1\n");
  EXPECT_EQ(OneCell(Cell::Text("\t=1")), "a,b\n'\t=1,1\n");
  EXPECT_EQ(OneCell(Cell::Text("-1.5")), "a,b\n-1.5,1\n");
  EXPECT_EQ(Written({"=a", "b"}, {}), "'=a,b\n");
}

TEST_F(CsvWriterTest, AnEmptyCellAloneIsStillARow) {
  EXPECT_EQ(Written({"c"}, {{Cell()}, {Cell::Int(1)}}), "c\n\"\"\n1\n");
}

TEST_F(CsvWriterTest, ByteOrderMarkOnRequest) {
  EXPECT_EQ(Written({"c"}, {}, {.byte_order_mark = true}),
            "\xEF\xBB\xBF"
            "c\n");
}

TEST_F(CsvWriterTest, ManyRowsBecomeParts) {
  auto writer = NewCsvWriter(Path("r.csv"), {.rows_per_file = 2});
  ASSERT_TRUE(writer->Begin(std::vector<std::string>{"c"}).ok());
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(writer->Row(Row{Cell::Int(i)}, Mark::kNone).ok());
  const auto written = writer->Finish();
  ASSERT_TRUE(written.ok());
  EXPECT_THAT(*written,
              ElementsAre(Path("r_part_1.csv"), Path("r_part_2.csv"), Path("r_part_3.csv")));
  EXPECT_THAT(Files(), ElementsAre("r_part_1.csv", "r_part_2.csv", "r_part_3.csv"));
  EXPECT_EQ(Content("r_part_1.csv"), "c\n0\n1\n");
  EXPECT_EQ(Content("r_part_3.csv"), "c\n4\n");
}

TEST_F(CsvWriterTest, ExactlyOneFileFullIsNoPart) {
  EXPECT_EQ(Written({"c"}, {{Cell::Int(0)}, {Cell::Int(1)}}, {.rows_per_file = 2}), "c\n0\n1\n");
  EXPECT_THAT(Files(), ElementsAre("t.csv"));
}

TEST_F(CsvWriterTest, NothingAppearsBeforeFinish) {
  {
    auto writer = NewCsvWriter(Path("t.csv"));
    ASSERT_TRUE(writer->Begin(std::vector<std::string>{"c"}).ok());
    ASSERT_TRUE(writer->Row(Row{Cell::Int(1)}, Mark::kNone).ok());
    EXPECT_EQ(std::filesystem::exists(Path("t.csv")), false);
  }
  EXPECT_THAT(Files(), IsEmpty());
}

TEST_F(CsvWriterTest, WrongNumberOfCellsIsAnErrorThatStays) {
  auto writer = NewCsvWriter(Path("t.csv"));
  ASSERT_TRUE(writer->Begin(std::vector<std::string>{"a", "b"}).ok());
  const Status bad = writer->Row(Row{Cell::Int(1)}, Mark::kNone);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code, ErrorCode::kInternal);
  EXPECT_THAT(bad.error().message, HasSubstr("1 cells in a table of 2"));
  EXPECT_FALSE(writer->Row(Row{Cell::Int(1), Cell::Int(2)}, Mark::kNone).ok());
  EXPECT_FALSE(writer->Finish().ok());
  EXPECT_THAT(Files(), IsEmpty());
}

TEST_F(CsvWriterTest, WritingFails) {
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto old_handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{1'500'000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  auto writer = NewCsvWriter(Path("t.csv"), {.rows_per_file = 1000});
  Status status = writer->Begin(std::vector<std::string>{"a"});
  const std::string text(2000, 'x');  // a file is 2 MB, more than the limit
  for (int i = 0; i < 3000 && status.ok(); ++i)
    status = writer->Row(Row{Cell::Text(text)}, Mark::kNone);
  const auto done = writer->Finish();
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, old_handler);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().path, Path("t.csv"));
  EXPECT_FALSE(done.ok());
  EXPECT_THAT(Files(), IsEmpty());
}

TEST_F(CsvWriterTest, MissingFolder) {
  auto writer = NewCsvWriter(Path("no/t.csv"));
  const Status s = writer->Begin(std::vector<std::string>{"c"});
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().code, ErrorCode::kNotFound);
}

class CsvReaderTest : public ReportTest {
 protected:
  Result<TextTable> Read(const std::string& content, const ReadLimits& limits = {}) {
    return ReadCsv(Write("t.csv", content), limits);
  }
  void ExpectError(const std::string& content, ErrorCode code, uint32_t line,
                   const std::string& message, const ReadLimits& limits = {}) {
    const auto table = Read(content, limits);
    ASSERT_FALSE(table.ok()) << content;
    EXPECT_EQ(table.error().code, code);
    EXPECT_EQ(table.error().line, line);
    EXPECT_EQ(table.error().path, Path("t.csv"));
    EXPECT_THAT(table.error().message, HasSubstr(message));
  }
};

TEST_F(CsvReaderTest, LineEndsAndByteOrderMark) {
  for (const std::string end : {"\n", "\r\n", "\r"}) {
    const auto table = Read(
        "\xEF\xBB\xBF"
        "a,b" +
        end + "1,2" + end + end + "3,");
    ASSERT_TRUE(table.ok());
    EXPECT_THAT(table->columns, ElementsAre("a", "b"));
    EXPECT_THAT(table->rows, ElementsAre(ElementsAre("1", "2"), ElementsAre("3", "")));
  }
}

TEST_F(CsvReaderTest, Quotes) {
  const auto table = Read("a,b\n\"x, \"\"y\"\"\",\"two\r\nlines\"\n\"\",plain \"quote\"\n");
  ASSERT_TRUE(table.ok());
  EXPECT_THAT(table->rows, ElementsAre(ElementsAre("x, \"y\"", "two\r\nlines"),
                                       ElementsAre("", "plain \"quote\"")));
}

TEST_F(CsvReaderTest, AQuotedEmptyCellIsARowAndAnEmptyLineIsNot) {
  const auto table = Read("a\n\"\"\n\n1\n");
  ASSERT_TRUE(table.ok());
  EXPECT_THAT(table->rows, ElementsAre(ElementsAre(""), ElementsAre("1")));
}

TEST_F(CsvReaderTest, EmptyFileHasNoColumns) {
  const auto table = Read("");
  ASSERT_TRUE(table.ok());
  EXPECT_THAT(table->columns, IsEmpty());
  EXPECT_THAT(table->rows, IsEmpty());
}

TEST_F(CsvReaderTest, RaggedRowsAreNamedByLine) {
  ExpectError("a,b\n\"x\ny\",1\n1\n", ErrorCode::kMalformed, 4,
              "the row has 1 fields, the header has 2");
  ExpectError("a,b\n1,2,3\n", ErrorCode::kMalformed, 2, "the row has 3 fields, the header has 2");
}

TEST_F(CsvReaderTest, BadQuotes) {
  ExpectError("a\n1\n\"x\ny", ErrorCode::kTruncated, 3, "ends inside a quoted field");
  ExpectError("a\n\"x\"y\n", ErrorCode::kMalformed, 2, "text follows the closing quote");
}

TEST_F(CsvReaderTest, BytesThatAreNotUtf8) {
  ExpectError("a\nok\n\xFF\n", ErrorCode::kMalformed, 3, "not UTF-8");
}

TEST_F(CsvReaderTest, TextOfAnotherEncoding) {
  ExpectError(std::string("\xFF\xFE"
                          "a\0,\0b\0\n\0",
                          10),
              ErrorCode::kMalformed, 1, "is UTF-16");
}

// Rows of all lengths, so that every kind of byte comes to lie on the end of the reader's window.
TEST_F(CsvReaderTest, RecordsAreNotCutByTheWindow) {
  std::string content = "a,b\r\n";
  std::vector<std::string> texts;
  for (size_t k = 0; content.size() < (5u << 20); ++k) {
    texts.push_back(std::string(k * 37 % 4093, 'x') + "\"\r\n");
    content += std::to_string(k) + ",\"" + texts.back().substr(0, texts.back().size() - 3) +
               "\"\"\r\n\"\r\n";
  }
  const auto table = Read(content);
  ASSERT_TRUE(table.ok()) << table.error().ToString();
  ASSERT_EQ(table->rows.size(), texts.size());
  for (size_t k = 0; k < texts.size(); ++k)
    ASSERT_EQ(table->rows[k], (std::vector<std::string>{std::to_string(k), texts[k]})) << k;
}

TEST_F(CsvReaderTest, ARecordMayBeLongerThanTheWindow) {
  const std::string cell(1u << 20, 'y');
  const auto table = Read("a,b,c\n1,2,3\n" + cell + "," + cell + ",\"" + cell + "\"\n4,5,6");
  ASSERT_TRUE(table.ok()) << table.error().ToString();
  ASSERT_EQ(table->rows.size(), 3u);
  EXPECT_EQ(table->rows[1], (std::vector<std::string>{cell, cell, cell}));
  EXPECT_EQ(table->rows[2][2], "6");
}

TEST_F(CsvReaderTest, Limits) {
  ExpectError("a\n1\n2\n", ErrorCode::kTooLarge, 3, "more than 1 rows", {.max_rows = 1});
  ExpectError("a,b\n1,2\n3,4\n", ErrorCode::kTooLarge, 3, "more than 3 cells", {.max_cells = 3});
  ExpectError("a\n12345\n", ErrorCode::kTooLarge, 2, "a cell of more than 4 bytes",
              {.max_cell_bytes = 4});
  ExpectError("a\n\"123\"\"5\"\n", ErrorCode::kTooLarge, 2, "a cell of more than 4 bytes",
              {.max_cell_bytes = 4});
  ExpectError("a\n1\n", ErrorCode::kTooLarge, 0, "", {.max_bytes = 3});
}

TEST_F(CsvReaderTest, MissingFile) {
  const auto table = ReadCsv(Path("none.csv"));
  ASSERT_FALSE(table.ok());
  EXPECT_EQ(table.error().code, ErrorCode::kNotFound);
}

// Texts that make trouble come back as they were.
TEST_F(CsvReaderTest, ReadsWhatTheWriterWrote) {
  const std::vector<std::string> texts = {"a,b", "\"", "\n", "x\r\ny", " blank ", "µ和", "''", ""};
  auto writer = NewCsvWriter(Path("t.csv"));
  ASSERT_TRUE(writer->Begin(std::vector<std::string>{"x", "y"}).ok());
  for (const std::string& t : texts)
    ASSERT_TRUE(writer->Row(Row{Cell::Text(t), Cell::Text(t)}, Mark::kNone).ok());
  ASSERT_TRUE(writer->Finish().ok());
  const auto table = ReadCsv(Path("t.csv"));
  ASSERT_TRUE(table.ok());
  ASSERT_EQ(table->rows.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i)
    EXPECT_THAT(table->rows[i], ElementsAre(texts[i], texts[i]));
}

}  // namespace
}  // namespace msprobe::report
