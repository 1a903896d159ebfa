#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cmath>
#include <limits>

#include "archive/zip.h"
#include "report/report_test_util.h"
#include "report/row_spool.h"
#include "report/table.h"

namespace msprobe::report {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr double kInf = std::numeric_limits<double>::infinity();

class XlsxWriterTest : public ReportTest {
 protected:
  void WriteTable(const std::vector<std::string>& columns,
                  const std::vector<std::pair<Row, Mark>>& rows, XlsxOptions options = {}) {
    auto writer = NewXlsxWriter(Path("t.xlsx"), std::move(options));
    ASSERT_TRUE(writer->Begin(columns).ok());
    for (const auto& [cells, mark] : rows) ASSERT_TRUE(writer->Row(cells, mark).ok());
    const auto written = writer->Finish();
    ASSERT_TRUE(written.ok()) << written.error().ToString();
    EXPECT_THAT(*written, ElementsAre(Path("t.xlsx")));
    EXPECT_THAT(Files(), ElementsAre("t.xlsx"));
  }
  // The text of a member of t.xlsx.
  std::string Member(const std::string& name) {
    const auto file = InputFile::Open(Path("t.xlsx"));
    EXPECT_TRUE(file.ok());
    const auto zip = archive::ZipReader::Open(*file);
    EXPECT_TRUE(zip.ok()) << (zip.ok() ? "" : zip.error().ToString());
    const archive::ZipEntry* entry = zip->Find(name);
    EXPECT_NE(entry, nullptr) << name;
    const auto text = zip->Read(*entry, 1u << 24);
    EXPECT_TRUE(text.ok());
    return *text;
  }
  std::string Sheet() { return Member("xl/worksheets/sheet1.xml"); }
};

// Cell forms of ECMA-376 part 1, 18.3.1.4; what they have to hold is golden case s_worked, run
// "new-xlsx".
TEST_F(XlsxWriterTest, TypedCells) {
  WriteTable({"c", "d"}, {{{Cell::Double(5.4772257804870605), Cell::Int(3)}, Mark::kNone},
                          {{Cell::Bool(true), Cell::Double(kInf)}, Mark::kNone},
                          {{Cell::Double(-kInf), Cell::Double(std::nan(""))}, Mark::kNone},
                          {{Cell::Text("=1+1"), Cell::Text("http://a.b")}, Mark::kNone}});
  const std::string sheet = Sheet();
  EXPECT_THAT(sheet, HasSubstr("<c r=\"A2\"><v>5.477225780487061</v></c><c r=\"B2\"><v>3</v></c>"));
  EXPECT_THAT(
      sheet,
      HasSubstr(
          "<c r=\"A3\" t=\"b\"><v>1</v></c><c r=\"B3\" t=\"inlineStr\"><is><t>inf</t></is></c>"));
  EXPECT_THAT(sheet,
              HasSubstr("<row r=\"4\"><c r=\"A4\" t=\"inlineStr\"><is><t>-inf</t></is></c></row>"));
  EXPECT_THAT(sheet, HasSubstr("<c r=\"A5\" t=\"inlineStr\"><is><t>=1+1</t></is></c>"));
  EXPECT_THAT(sheet, HasSubstr("<t>http://a.b</t>"));
  EXPECT_THAT(sheet, Not(HasSubstr("<f>")));
  EXPECT_THAT(sheet, Not(HasSubstr("hyperlink")));
}

// Golden case s_worked, run "old": inf is `inf` and a TAB, booleans are texts, the sheet is called
// Sheet.
TEST_F(XlsxWriterTest, EverythingText) {
  WriteTable({"c", "d"},
             {{{Cell::Double(kInf), Cell::Double(-kInf)}, Mark::kNone},
              {{Cell::Double(std::nan("")), Cell::Bool(true)}, Mark::kNone},
              {{Cell::Bool(false), Cell::Double(2.5)}, Mark::kNone}},
             {.sheet = "Sheet", .styled_header = false, .everything_text = true});
  const auto tables = ReadXlsx(Path("t.xlsx"));
  ASSERT_TRUE(tables.ok());
  EXPECT_EQ((*tables)[0].sheet, "Sheet");
  EXPECT_THAT((*tables)[0].rows,
              ElementsAre(ElementsAre("inf\t", "-inf\t"), ElementsAre("nan\t", "True"),
                          ElementsAre("False", "2.5")));
  EXPECT_THAT(Sheet(), HasSubstr("<t xml:space=\"preserve\">inf\t</t>"));
}

// compare.md 11: red FFFF0000, yellow 00FFFF00, in every cell of the row, the empty ones too.
TEST_F(XlsxWriterTest, WholeRowsAreColoured) {
  WriteTable({"c", "d"}, {{{Cell::Int(1), Cell()}, Mark::kWarning},
                          {{Cell::Text("x"), Cell()}, Mark::kError},
                          {{Cell::Int(2), Cell()}, Mark::kNone}});
  const std::string styles = Member("xl/styles.xml");
  EXPECT_THAT(styles, HasSubstr("<fgColor rgb=\"FFFF0000\"/>"));
  EXPECT_THAT(styles, HasSubstr("<fgColor rgb=\"00FFFF00\"/>"));
  EXPECT_THAT(styles, Not(HasSubstr("FFFFFF00")));
  const std::string sheet = Sheet();
  // Formats are numbered by first use: 1 is the header's, 2 yellow, 3 red.
  EXPECT_THAT(sheet, HasSubstr("<c r=\"A2\" s=\"2\"><v>1</v></c><c r=\"B2\" s=\"2\"/>"));
  EXPECT_THAT(
      sheet,
      HasSubstr("<c r=\"A3\" s=\"3\" t=\"inlineStr\"><is><t>x</t></is></c><c r=\"B3\" s=\"3\"/>"));
  EXPECT_THAT(sheet, HasSubstr("<c r=\"A4\"><v>2</v></c></row>"));
}

TEST_F(XlsxWriterTest, HeaderPanesFilterAndWidths) {
  WriteTable({"NPU Name", "x"},
             {{{Cell::Text("Functional.relu.0.forward"), Cell::Int(1)}, Mark::kNone}});
  const std::string sheet = Sheet();
  EXPECT_THAT(
      sheet,
      HasSubstr(
          "<pane ySplit=\"1\" topLeftCell=\"A2\" activePane=\"bottomLeft\" state=\"frozen\"/>"));
  EXPECT_THAT(sheet, HasSubstr("<autoFilter ref=\"A1:B2\"/>"));
  EXPECT_THAT(
      sheet,
      HasSubstr(
          "<col min=\"1\" max=\"1\" width=\"25.7109375\""));  // 25 characters and Excel's margin
  EXPECT_THAT(sheet, HasSubstr("<c r=\"A1\" s=\"1\""));
  const std::string styles = Member("xl/styles.xml");
  EXPECT_THAT(styles, HasSubstr("<b/>"));
  EXPECT_THAT(styles, HasSubstr("<left style=\"thin\">"));
  EXPECT_THAT(styles, HasSubstr("horizontal=\"center\""));
}

TEST_F(XlsxWriterTest, PlainHeader) {
  WriteTable({"x"}, {}, {.styled_header = false, .freeze_and_filter = false});
  const std::string sheet = Sheet();
  EXPECT_THAT(sheet, HasSubstr("<c r=\"A1\" t=\"inlineStr\"><is><t>x</t></is></c>"));
  EXPECT_THAT(sheet, Not(HasSubstr("pane")));
  EXPECT_THAT(sheet, Not(HasSubstr("autoFilter")));
  EXPECT_THAT(Member("xl/styles.xml"), Not(HasSubstr("<b/>")));
}

// compare.md 14.2: from the limit on (not only beyond), evenly.
TEST_F(XlsxWriterTest, ManyRowsAreSplitEvenly) {
  std::vector<std::pair<Row, Mark>> rows;
  for (int i = 0; i < 7; ++i) rows.push_back({{Cell::Int(i)}, Mark::kNone});
  WriteTable({"c"}, rows, {.rows_per_sheet = 3});
  const auto tables = ReadXlsx(Path("t.xlsx"));
  ASSERT_TRUE(tables.ok());
  ASSERT_EQ(tables->size(), 3u);
  EXPECT_EQ((*tables)[0].sheet, "part_0");
  EXPECT_THAT((*tables)[0].rows, ElementsAre(ElementsAre("0"), ElementsAre("1"), ElementsAre("2")));
  EXPECT_EQ((*tables)[1].sheet, "part_1");
  EXPECT_THAT((*tables)[1].rows, ElementsAre(ElementsAre("3"), ElementsAre("4")));
  EXPECT_EQ((*tables)[2].sheet, "part_2");
  EXPECT_THAT((*tables)[2].rows, ElementsAre(ElementsAre("5"), ElementsAre("6")));
}

TEST_F(XlsxWriterTest, AtTheLimitTheOnlySheetIsAPart) {
  WriteTable({"c"}, {{{Cell::Int(1)}, Mark::kNone}, {{Cell::Int(2)}, Mark::kNone}},
             {.sheet = "Cosine", .rows_per_sheet = 2});
  EXPECT_EQ(ReadXlsx(Path("t.xlsx"))->front().sheet, "Cosine_part_0");
}

TEST_F(XlsxWriterTest, OddTextsComeBack) {
  const std::string odd = "\x01 _x0041_ \r\n <&> \"q\" µ和 ";
  WriteTable({odd, "y"}, {{{Cell::Text(odd), Cell::Text("")}, Mark::kError}});
  const auto tables = ReadXlsx(Path("t.xlsx"));
  ASSERT_TRUE(tables.ok());
  EXPECT_THAT((*tables)[0].columns, ElementsAre(odd, "y"));
  EXPECT_THAT((*tables)[0].rows, ElementsAre(ElementsAre(odd, "")));
}

TEST_F(XlsxWriterTest, SeveralSheets) {
  auto book = NewXlsxBookWriter(Path("t.xlsx"));
  ASSERT_TRUE(book->Sheet("One Thousandth Err Ratio", std::vector<std::string>{"a", "b"}).ok());
  ASSERT_TRUE(book->Row(Row{Cell::Int(1), Cell::Text("x")}, Mark::kNone).ok());
  ASSERT_TRUE(
      book->Sheet("a/b*[c]: a name that is too long for Excel", std::vector<std::string>{"c"})
          .ok());
  ASSERT_TRUE(book->Row(Row{Cell::Double(0.5)}, Mark::kWarning).ok());
  ASSERT_TRUE(book->Finish().ok());
  const auto tables = ReadXlsx(Path("t.xlsx"));
  ASSERT_TRUE(tables.ok());
  ASSERT_EQ(tables->size(), 2u);
  EXPECT_EQ((*tables)[0].sheet, "One Thousandth Err Ratio");
  EXPECT_THAT((*tables)[0].rows, ElementsAre(ElementsAre("1", "x")));
  EXPECT_EQ((*tables)[1].sheet, "a_b__c__ a name that is too lon");
  EXPECT_THAT((*tables)[1].rows, ElementsAre(ElementsAre("0.5")));
}

TEST_F(XlsxWriterTest, TwoSheetsOfOneName) {
  auto book = NewXlsxBookWriter(Path("t.xlsx"));
  ASSERT_TRUE(book->Sheet("a", std::vector<std::string>{"x"}).ok());
  ASSERT_TRUE(book->Sheet("A", std::vector<std::string>{"x"}).ok());
  const auto done = book->Finish();
  ASSERT_FALSE(done.ok());
  EXPECT_THAT(done.error().message, HasSubstr("cannot add the sheet \"A\""));
  book.reset();
  EXPECT_THAT(Files(), IsEmpty());
}

TEST_F(XlsxWriterTest, MissingFolder) {
  auto writer = NewXlsxWriter(Path("no/t.xlsx"));
  const Status s = writer->Begin(std::vector<std::string>{"c"});
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().code, ErrorCode::kNotFound);
}

TEST_F(XlsxWriterTest, NothingIsLeftWithoutFinish) {
  {
    auto writer = NewXlsxWriter(Path("t.xlsx"));
    ASSERT_TRUE(writer->Begin(std::vector<std::string>{"c"}).ok());
    ASSERT_TRUE(writer->Row(Row{Cell::Int(1)}, Mark::kNone).ok());
  }
  EXPECT_THAT(Files(), IsEmpty());
}

TEST_F(XlsxWriterTest, WrongNumberOfCells) {
  auto writer = NewXlsxWriter(Path("t.xlsx"));
  ASSERT_TRUE(writer->Begin(std::vector<std::string>{"a"}).ok());
  EXPECT_FALSE(writer->Row(Row{}, Mark::kNone).ok());
  EXPECT_FALSE(writer->Finish().ok());
  EXPECT_THAT(Files(), IsEmpty());
}

// A limit on the size of files stands for a full disk: whichever file hits it, an error comes out
// and nothing is left.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    old_handler_ = signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit before_{};
  void (*old_handler_)(int) = nullptr;
};

TEST_F(XlsxWriterTest, FullDisk) {
  for (const rlim_t bytes : {rlim_t{0}, rlim_t{1000}, rlim_t{100'000}, rlim_t{2'000'000}}) {
    const FileSizeLimit limit(bytes);
    auto writer = NewXlsxWriter(Path("t.xlsx"));
    Status status = writer->Begin(std::vector<std::string>{"a"});
    const std::string text(1000, 'x');
    for (int i = 0; i < 6000 && status.ok(); ++i)
      status = writer->Row(Row{Cell::Text(text)}, Mark::kWarning);
    if (status.ok()) {
      const auto done = writer->Finish();
      ASSERT_FALSE(done.ok()) << bytes;
      EXPECT_FALSE(done.error().path.empty());
    }
    writer.reset();
    EXPECT_THAT(Files(), IsEmpty()) << bytes;
  }
}

class RowSpoolTest : public ReportTest {};

// More than the spool keeps in memory, with a row that is larger than its buffer.
TEST_F(RowSpoolTest, RowsComeBackFromTheFile) {
  RowSpool spool(folder_);
  const std::string large(RowSpool::kMemoryBytes + 100, 'x');
  constexpr int kRows = 200000;
  for (int i = 0; i < kRows; ++i) {
    const std::string text = std::to_string(i);
    ASSERT_TRUE(
        spool
            .Add(Row{Cell::Int(i), Cell::Text(i == 7 ? large : text), Cell::Bool(i % 2 == 1),
                     Cell::Double(i / 4.0), Cell::Uint(UINT64_MAX), Cell()},
                 i % 3 == 0 ? Mark::kError : Mark::kNone)
            .ok());
  }
  EXPECT_EQ(spool.rows(), static_cast<uint64_t>(kRows));
  EXPECT_THAT(Files(), IsEmpty());  // its file has no name
  ASSERT_TRUE(spool.Rewind().ok());
  std::vector<Cell> cells;
  for (int i = 0; i < kRows; ++i) {
    Mark mark = Mark::kNone;
    ASSERT_TRUE(spool.Next(cells, mark).ok());
    ASSERT_EQ(cells.size(), 6u);
    ASSERT_EQ(cells[0].i, i);
    ASSERT_EQ(cells[1].text, i == 7 ? large : std::to_string(i));
    ASSERT_EQ(cells[2].b, i % 2 == 1);
    ASSERT_EQ(cells[3].d, i / 4.0);
    ASSERT_EQ(cells[4].u, UINT64_MAX);
    ASSERT_EQ(cells[5].kind, Cell::Kind::kEmpty);
    ASSERT_EQ(mark, i % 3 == 0 ? Mark::kError : Mark::kNone);
  }
}

// The files are made by tests/data/report/make_report_data.py, which says what they hold.
class XlsxReaderTest : public ReportTest {
 protected:
  static std::string Data(const std::string& name) {
    return std::string(MSPROBE_TEST_DATA) + "/report/" + name;
  }
  static void ExpectError(const std::string& name, ErrorCode code, const std::string& message,
                          const ReadLimits& limits = {}) {
    const auto tables = ReadXlsx(Data(name), limits);
    ASSERT_FALSE(tables.ok()) << name;
    EXPECT_EQ(tables.error().code, code) << tables.error().ToString();
    EXPECT_THAT(tables.error().ToString(), HasSubstr(message));
    EXPECT_EQ(tables.error().path, Data(name));
  }
};

TEST_F(XlsxReaderTest, WorkbookOfAnotherProgram) {
  const auto tables = ReadXlsx(Data("openpyxl.xlsx"));
  ASSERT_TRUE(tables.ok()) << tables.error().ToString();
  ASSERT_EQ(tables->size(), 2u);  // the chart is left out
  const TextTable& cosine = (*tables)[0];
  EXPECT_EQ(cosine.sheet, "Cosine");
  EXPECT_THAT(cosine.columns, ElementsAre("NPU Name", "rank0", "rank1", "note"));
  EXPECT_THAT(
      cosine.rows,
      ElementsAre(ElementsAre("Functional.relu.0.forward.input.0", "1", "0.25", "a < b & \"c\"\nd"),
                  ElementsAre("Torch.add.0.forward", "True", "", "#DIV/0!"),
                  ElementsAre("Tensor.mul.0.forward", "1e-12", "False", "µ和"),
                  ElementsAre("", "", "", ""), ElementsAre("after a gap", "", "", "plain bold")));
  EXPECT_EQ((*tables)[1].sheet, "Max diff");
  EXPECT_THAT((*tables)[1].rows, ElementsAre(ElementsAre("Functional.relu.0.forward.input.0")));
}

TEST_F(XlsxReaderTest, InlineStringsPrefixesAndEscapes) {
  const auto tables = ReadXlsx(Data("inline.xlsx"));
  ASSERT_TRUE(tables.ok()) << tables.error().ToString();
  ASSERT_EQ(tables->size(), 1u);
  EXPECT_EQ((*tables)[0].sheet, "S & T");
  EXPECT_THAT((*tables)[0].columns, ElementsAre("name", "value"));
  EXPECT_THAT((*tables)[0].rows, ElementsAre(ElementsAre("a\tb_x0041_", "1.50")));
}

TEST_F(XlsxReaderTest, EntitiesAreRefused) {
  ExpectError("laughs.xlsx", ErrorCode::kMalformed, "document type declaration");
}

TEST_F(XlsxReaderTest, ReferencesThatLie) {
  ExpectError("bad_string.xlsx", ErrorCode::kMalformed,
              "row 1: a cell refers to a shared string that is not there");
  ExpectError("bad_row.xlsx", ErrorCode::kMalformed, "row 1: the next row has a wrong number");
  ExpectError("bad_cell.xlsx", ErrorCode::kMalformed, "row 1: a cell has a wrong reference");
  ExpectError("wide_row.xlsx", ErrorCode::kMalformed,
              "row 2: a cell right of the 2 columns of the header");
}

TEST_F(XlsxReaderTest, PartsThatAreBrokenOrMissing) {
  ExpectError("broken.xlsx", ErrorCode::kMalformed,
              "xl/worksheets/sheet1.xml: not valid XML: mismatched tag (line 2");
  ExpectError("no_sheet.xlsx", ErrorCode::kMalformed, "no member \"xl/worksheets/sheet1.xml\"");
  ExpectError("no_workbook.xlsx", ErrorCode::kMalformed, "no member \"xl/workbook.xml\"");
  const auto text = ReadXlsx(Write("t.xlsx", "NPU Name,Cosine\n"));
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().path, Path("t.xlsx"));
}

TEST_F(XlsxReaderTest, Limits) {
  ExpectError("far_row.xlsx", ErrorCode::kTooLarge, "too many rows", {.max_rows = 1000});
  ExpectError("far_row.xlsx", ErrorCode::kTooLarge, "too many rows", {.max_cells = 1000});
  ExpectError("large.xlsx", ErrorCode::kTooLarge, "",
              {.max_bytes = 100000});  // 200,000 bytes from 1,216
  ExpectError("large.xlsx", ErrorCode::kTooLarge, "a shared string is too long",
              {.max_cell_bytes = 100000});
  ExpectError("repeated.xlsx", ErrorCode::kTooLarge, "the cells hold too much text",
              {.max_bytes = 50000});
  EXPECT_TRUE(ReadXlsx(Data("repeated.xlsx")).ok());
}

}  // namespace
}  // namespace msprobe::report
