// A neutral table: typed cells and meaning-based styles. Knows nothing of tensors or comparison.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace msprobe::report {

// One cell. Text is borrowed: it lives until Row() returns.
struct Cell {
  enum class Kind : uint8_t { kEmpty, kText, kDouble, kInt, kUint, kBool };
  Kind kind = Kind::kEmpty;
  union {
    double d;
    int64_t i;
    uint64_t u;
    bool b;
  };
  std::string_view text;

  Cell() : i(0) {}
  static Cell Text(std::string_view t) {
    Cell c;
    c.kind = Kind::kText;
    c.text = t;
    return c;
  }
  static Cell Double(double v) {
    Cell c;
    c.kind = Kind::kDouble;
    c.d = v;
    return c;
  }
  static Cell Int(int64_t v) {
    Cell c;
    c.kind = Kind::kInt;
    c.i = v;
    return c;
  }
  static Cell Uint(uint64_t v) {
    Cell c;
    c.kind = Kind::kUint;
    c.u = v;
    return c;
  }
  static Cell Bool(bool v) {
    Cell c;
    c.kind = Kind::kBool;
    c.b = v;
    return c;
  }
};

enum class Mark : uint8_t { kNone, kError, kWarning };  // shown red and yellow

// Receives a table row by row. Begin once, Row any number of times, Finish once. An error leaves no
// file behind.
class TableWriter {
 public:
  virtual ~TableWriter() = default;
  virtual Status Begin(std::span<const std::string> columns) = 0;
  virtual Status Row(std::span<const Cell> cells, Mark mark) = 0;
  // Completes the file(s); paths that were written, in order.
  virtual Result<std::vector<std::string>> Finish() = 0;
};

struct CsvOptions {
  bool byte_order_mark = false;
  uint64_t rows_per_file =
      1'000'000;  // more rows: <name>_part_1.csv, <name>_part_2.csv, … (compare.md 14.3)
};
// RFC 4180 quoting, UTF-8, lines end in "\n" as pandas writes them. Doubles as Python prints them,
// infinities as " inf" / " -inf", NaN empty. Booleans as True/False. A text cell or column name
// that a spreadsheet could run gets a leading apostrophe (decisions.md 4). All parts appear
// together when Finish() succeeds.
std::unique_ptr<TableWriter> NewCsvWriter(std::string path, CsvOptions options = {});

struct XlsxOptions {
  std::string sheet = "Sheet1";
  bool styled_header = true;  // bold, centred, thin border (compare.md 14.2); plain otherwise
  bool everything_text =
      false;  // the old highlight path: booleans and non-numbers as text, inf/-inf/nan as "inf\t"
  bool freeze_and_filter = true;        // frozen header, filter, column widths (D36)
  uint64_t rows_per_sheet = 1'048'500;  // at that many rows: sheets part_0, part_1, … (14.2)
};
// A coloured row has every cell filled: red FFFF0000, yellow 00FFFF00 (compare.md 11). Numbers have
// 16 significant digits, strings are strings (never formulas or links), cut at 32,767 UTF-16 units
// with "…(+N)"; control characters as _xHHHH_. Rows wait in a temporary file of the target folder,
// and everything is written in Finish(). Memory stays below 20 MB whatever the size.
std::unique_ptr<TableWriter> NewXlsxWriter(std::string path, XlsxOptions options = {});

// Several tables in one workbook. Sheet begins one (XlsxOptions::sheet is not used), Row adds to
// the one that was begun last. Errors: kInternal when two sheets have names that differ at most by
// case.
class BookWriter {
 public:
  virtual ~BookWriter() = default;
  virtual Status Sheet(const std::string& name, std::span<const std::string> columns) = 0;
  virtual Status Row(std::span<const Cell> cells, Mark mark) = 0;
  virtual Result<std::vector<std::string>> Finish() = 0;
};
std::unique_ptr<BookWriter> NewXlsxBookWriter(std::string path, XlsxOptions options = {});

// A table in memory, as read back.
struct TextTable {
  std::string sheet;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>>
      rows;  // every cell as text; numbers as the file spells them; empty for empty cells
};
struct ReadLimits {
  uint64_t max_bytes = 1ull << 30;
  uint64_t max_rows = 20'000'000;
  uint64_t max_cell_bytes = 1u << 20;
  uint64_t max_cells = 64'000'000;  // of all sheets together
  bool allow_short_rows = false;    // csv: rows with fewer fields than the header
};
// The first line holds the columns; empty lines are skipped. With or without byte-order mark; lines
// end in "\n", "\r\n" or "\r"; quoted fields may hold line feeds. Errors: kMalformed with the line
// for ragged rows, text behind a closing quote and bytes that are not UTF-8; kTruncated when the
// file ends inside quotes; kTooLarge beyond a limit.
Result<TextTable> ReadCsv(const std::string& path, const ReadLimits& limits = {});
// The same, record by record, for files that need not be in memory as a table: a window of 1 MiB,
// more where a record needs it (at most 256 MiB: kTooLarge). An error of `out` ends the reading and
// gets the path.
class CsvRows {
 public:
  virtual ~CsvRows() = default;
  virtual Status Header(std::span<const std::string> columns) = 0;
  virtual Status Row(std::span<const std::string> cells,
                     uint32_t line) = 0;  // borrowed until it returns; first line of the record
  virtual void Progress(uint64_t /*done*/, uint64_t /*total*/) {}  // bytes; once a MiB
};
Status ReadCsvRows(const std::string& path, CsvRows& out, const ReadLimits& limits = {});
// All sheets with cells, in the order of the workbook; the first row of each holds the columns.
// Booleans as True/False, error values as their text, left-out cells and rows as empty ones.
// Errors: kMalformed (no workbook, wrong references, a row longer than the header, document type
// declarations), kTooLarge (max_bytes holds for the file, its unpacked parts and the text of all
// cells).
Result<std::vector<TextTable>> ReadXlsx(const std::string& path, const ReadLimits& limits = {});

// True when a spreadsheet could execute the text: begins with one of + - = % @ (ASCII or full
// width), or holds ';' followed by one, and is not a number (compare.md 3.3, 14.4).
bool LooksExecutable(std::string_view text);

}  // namespace msprobe::report
