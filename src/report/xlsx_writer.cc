#include <fmt/format.h>
#include <sys/stat.h>
#include <xlsxwriter.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "base/file.h"
#include "report/row_spool.h"
#include "report/table.h"
#include "report/text_rules.h"
#include "report/xlsx_patch.h"

namespace msprobe::report {
namespace {

constexpr size_t kMaxSheetName = 31, kMaxColumns = 16384;
constexpr double kMinWidth = 10, kMaxWidth = 60;  // of a column, in characters
constexpr lxw_color_t kRed = 0xFF0000, kYellow = 0xFFFF00;

// Excel's rules for sheet names, leaving room for `suffix`.
std::string SheetName(std::string_view name, std::string_view suffix) {
  std::string clean;
  size_t room = kMaxSheetName - suffix.size();
  for (const char c : name) {
    const bool starts_character = (static_cast<unsigned char>(c) & 0xC0u) != 0x80u;
    if (starts_character && room-- == 0) break;
    const bool forbidden = std::string_view("[]:*?/\\'").find(c) != std::string_view::npos;
    clean += forbidden || static_cast<unsigned char>(c) < 0x20 ? '_' : c;
  }
  return clean + std::string(suffix);
}

struct Formats {
  lxw_format* header = nullptr;
  lxw_format* error = nullptr;
  lxw_format* warning = nullptr;

  lxw_format* Of(Mark mark) const {
    return mark == Mark::kError ? error : mark == Mark::kWarning ? warning : nullptr;
  }
};

lxw_format* FillFormat(lxw_workbook* book, lxw_color_t colour) {
  lxw_format* format = workbook_add_format(book);
  format_set_pattern(format, LXW_PATTERN_SOLID);
  format_set_bg_color(format, colour);
  return format;
}

// Owns a libxlsxwriter workbook until it is closed.
class Workbook {
 public:
  Workbook(const std::string& file, std::string folder, const XlsxOptions& options)
      : folder_(std::move(folder)) {
    lxw_workbook_options settings{};
    settings.constant_memory = LXW_TRUE;
    settings.tmpdir = folder_.data();  // where the report itself goes: /tmp may be small
    book_ = workbook_new_opt(file.c_str(), &settings);
    if (book_ == nullptr) return;
    formats_.error = FillFormat(book_, kRed);
    formats_.warning = FillFormat(book_, kYellow);
    if (options.styled_header) {
      formats_.header = workbook_add_format(book_);
      format_set_bold(formats_.header);
      format_set_align(formats_.header, LXW_ALIGN_CENTER);
      format_set_align(formats_.header, LXW_ALIGN_VERTICAL_TOP);
      format_set_border(formats_.header, LXW_BORDER_THIN);
    }
  }
  Workbook(const Workbook&) = delete;
  Workbook& operator=(const Workbook&) = delete;
  ~Workbook() {
    if (book_ != nullptr) lxw_workbook_free(book_);
  }

  lxw_workbook* get() const { return book_; }
  const Formats& formats() const { return formats_; }
  lxw_error Close() { return workbook_close(std::exchange(book_, nullptr)); }  // frees it, too

 private:
  std::string folder_;
  lxw_workbook* book_ = nullptr;
  Formats formats_;
};

class XlsxBook final : public BookWriter {
 public:
  XlsxBook(std::string path, XlsxOptions options)
      : path_(std::move(path)), options_(std::move(options)) {}

  Status Sheet(const std::string& name, std::span<const std::string> columns) override {
    if (failure_) return *failure_;
    if (!file_) {
      auto file = AtomicFile::Create(path_);
      if (!file.ok()) return Fail(std::move(file).error());
      file_.emplace(std::move(file).value());
      book_.emplace(file_->temporary_path(), DirName(path_), options_);
      if (book_->get() == nullptr)
        return Fail(Error(ErrorCode::kIo, "cannot begin a workbook").At(path_));
    } else if (auto s = WriteSheets(); !s.ok()) {
      return Fail(std::move(s).error());
    }
    if (columns.size() > kMaxColumns) {
      return Fail(Error(ErrorCode::kTooLarge, "a sheet holds at most 16384 columns").At(path_));
    }
    name_ = name;
    columns_.assign(columns.begin(), columns.end());
    widths_.clear();
    for (const std::string& column : columns_)
      widths_.push_back(CountCharacters(column) + 3);  // the filter's arrow
    spool_.emplace(DirName(path_));
    return {};
  }

  Status Row(std::span<const Cell> cells, Mark mark) override {
    if (failure_) return *failure_;
    if (!spool_ || cells.size() != columns_.size()) {
      return Fail(
          Error(ErrorCode::kInternal, fmt::format("a row of {} cells in a table of {} columns",
                                                  cells.size(), columns_.size()))
              .At(path_));
    }
    for (size_t i = 0; i < cells.size(); ++i) {
      if (cells[i].kind == Cell::Kind::kText)
        widths_[i] = std::max(widths_[i], cells[i].text.size());
    }
    Status added = spool_->Add(cells, mark);
    return added.ok() ? added : Fail(std::move(added).error());
  }

  Result<std::vector<std::string>> Finish() override {
    if (failure_) return *failure_;
    Status done = Complete();
    if (!done.ok()) return Fail(std::move(done).error()).error();
    return std::vector<std::string>{path_};
  }

 private:
  Status Fail(Error error) {
    failure_ = error;
    book_.reset();
    spool_.reset();
    file_.reset();
    return error;
  }

  Status Complete() {
    if (!file_) return Error(ErrorCode::kInternal, "Finish before Begin").At(path_);
    MSPROBE_TRY(WriteSheets());
    // The library asks for this when it begins the archive, which is in Close. Readers are happier
    // without.
    constexpr uint64_t kPlainZipBytes = 3'000'000'000;
    if (xml_bytes_ > kPlainZipBytes) book_->get()->options.use_zip64 = LXW_TRUE;
    if (const lxw_error e = book_->Close(); e != LXW_NO_ERROR) return LibraryError(e);
    // Yellow has been written with alpha 0 since the first releases, and scripts look for exactly
    // that text (compare.md 11).
    if (has_yellow_) {
      MSPROBE_TRY(
          ReplaceInZipMember(file_->fd(), path_, "xl/styles.xml", "\"FFFFFF00\"", "\"00FFFF00\""));
    }
    return file_->Commit();
  }

  Error LibraryError(lxw_error e) const {
    return Error(e == LXW_ERROR_MEMORY_MALLOC_FAILED ? ErrorCode::kTooLarge : ErrorCode::kIo,
                 fmt::format("cannot write the workbook: {}", lxw_strerror(e)))
        .At(path_)
        .Hint("is the disk full?");
  }

  // The rows of the spool as one sheet, or as many as are needed, of equal length up to one row
  // (compare.md 14.2).
  Status WriteSheets() {
    const uint64_t rows = spool_->rows(), limit = options_.rows_per_sheet;
    MSPROBE_TRY(spool_->Rewind());
    const bool split = rows >= limit;
    const uint64_t sheets = split ? (rows + limit - 1) / limit : 1;
    const bool is_default_name = name_ == "Sheet1" || name_ == "Sheet";
    for (uint64_t i = 0; i < sheets; ++i) {
      const std::string part = fmt::format("part_{}", i);
      std::string name = SheetName(name_, "");
      if (split) name = is_default_name ? part : SheetName(name_, fmt::format("_{}", part));
      MSPROBE_TRY(WriteSheet(name, rows / sheets + (i < rows % sheets ? 1 : 0)));
    }
    spool_.reset();
    return {};
  }

  Status WriteSheet(const std::string& name, uint64_t rows) {
    // The library would print a warning, and compares without regard to case.
    std::string folded = name;
    std::transform(folded.begin(), folded.end(), folded.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    lxw_worksheet* sheet = nullptr;
    if (sheet_names_.insert(std::move(folded)).second)
      sheet = workbook_add_worksheet(book_->get(), name.c_str());
    if (sheet == nullptr)
      return Error(ErrorCode::kInternal, fmt::format("cannot add the sheet \"{}\"", name))
          .At(path_);
    WriteHeader(sheet, rows);
    std::vector<Cell> cells;
    for (uint64_t r = 1; r <= rows; ++r) {
      Mark mark = Mark::kNone;
      MSPROBE_TRY(spool_->Next(cells, mark));
      has_yellow_ |= mark == Mark::kWarning;
      lxw_format* format = book_->formats().Of(mark);
      for (size_t c = 0; c < cells.size(); ++c) {
        const lxw_error e = WriteCell(sheet, static_cast<lxw_row_t>(r), static_cast<lxw_col_t>(c),
                                      cells[c], format);
        if (e != LXW_NO_ERROR) return LibraryError(e);
      }
      xml_bytes_ += cells.size() * 48;
    }
    // The library does not look whether its temporary file took everything.
    if (fflush(sheet->optimize_tmpfile) != 0 || ferror(sheet->optimize_tmpfile) != 0) {
      return Error(ErrorCode::kNoSpace, "cannot write a temporary file in this folder")
          .At(DirName(path_));
    }
    return {};
  }

  void WriteHeader(lxw_worksheet* sheet, uint64_t rows) {
    for (size_t c = 0; c < columns_.size(); ++c) {
      const auto column = static_cast<lxw_col_t>(c);
      XlsxText(columns_[c], text_);
      worksheet_write_string(sheet, 0, column, text_.c_str(), book_->formats().header);
      if (options_.freeze_and_filter) {
        const double width = std::clamp(static_cast<double>(widths_[c]), kMinWidth, kMaxWidth);
        worksheet_set_column(sheet, column, column, width, nullptr);
      }
    }
    if (options_.freeze_and_filter && !columns_.empty()) {
      worksheet_freeze_panes(sheet, 1, 0);
      worksheet_autofilter(sheet, 0, 0, static_cast<lxw_row_t>(rows),
                           static_cast<lxw_col_t>(columns_.size() - 1));
    }
  }

  lxw_error WriteText(lxw_worksheet* sheet, lxw_row_t row, lxw_col_t column, std::string_view text,
                      lxw_format* format) {
    if (text.empty()) return worksheet_write_blank(sheet, row, column, format);
    XlsxText(text, text_);
    xml_bytes_ += text_.size();
    return worksheet_write_string(sheet, row, column, text_.c_str(), format);
  }

  lxw_error WriteCell(lxw_worksheet* sheet, lxw_row_t row, lxw_col_t column, const Cell& cell,
                      lxw_format* format) {
    switch (cell.kind) {
      case Cell::Kind::kEmpty:
        return worksheet_write_blank(sheet, row, column, format);
      case Cell::Kind::kText:
        return WriteText(sheet, row, column, cell.text, format);
      case Cell::Kind::kInt:
        return worksheet_write_number(sheet, row, column, static_cast<double>(cell.i), format);
      case Cell::Kind::kUint:
        return worksheet_write_number(sheet, row, column, static_cast<double>(cell.u), format);
      case Cell::Kind::kBool:
        if (options_.everything_text)
          return WriteText(sheet, row, column, cell.b ? "True" : "False", format);
        return worksheet_write_boolean(sheet, row, column, cell.b, format);
      case Cell::Kind::kDouble:
        break;
    }
    if (std::isfinite(cell.d)) return worksheet_write_number(sheet, row, column, cell.d, format);
    if (std::isnan(cell.d)) {
      return options_.everything_text ? WriteText(sheet, row, column, "nan\t", format)
                                      : worksheet_write_blank(sheet, row, column, format);
    }
    std::string_view word =
        cell.d > 0 ? "inf\t" : "-inf\t";  // the TAB keeps spreadsheets from reading it as a formula
    if (!options_.everything_text) word.remove_suffix(1);
    return WriteText(sheet, row, column, word, format);
  }

  const std::string path_;
  const XlsxOptions options_;
  std::optional<AtomicFile> file_;
  std::optional<Workbook> book_;
  std::optional<RowSpool> spool_;  // of the sheet that was begun last
  std::string name_;
  std::vector<std::string> columns_;
  std::vector<size_t> widths_;
  std::string text_;                   // scratch
  std::set<std::string> sheet_names_;  // in lower case
  bool has_yellow_ = false;
  uint64_t xml_bytes_ = 0;
  std::optional<Error> failure_;
};

class XlsxWriter final : public TableWriter {
 public:
  XlsxWriter(std::string path, const XlsxOptions& options)
      : sheet_(options.sheet), book_(std::move(path), options) {}
  Status Begin(std::span<const std::string> columns) override {
    return book_.Sheet(sheet_, columns);
  }
  Status Row(std::span<const Cell> cells, Mark mark) override { return book_.Row(cells, mark); }
  Result<std::vector<std::string>> Finish() override { return book_.Finish(); }

 private:
  const std::string sheet_;
  XlsxBook book_;
};

}  // namespace

std::unique_ptr<TableWriter> NewXlsxWriter(std::string path, XlsxOptions options) {
  return std::make_unique<XlsxWriter>(std::move(path), options);
}

std::unique_ptr<BookWriter> NewXlsxBookWriter(std::string path, XlsxOptions options) {
  return std::make_unique<XlsxBook>(std::move(path), std::move(options));
}

}  // namespace msprobe::report
