#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/file.h"
#include "base/text.h"
#include "report/table.h"

namespace msprobe::report {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

constexpr std::array<bool, 256> kEndsField = [] {
  std::array<bool, 256> out{};
  out[','] = out['\r'] = out['\n'] = true;
  return out;
}();

class CsvParser {
 public:
  CsvParser(std::string_view text, const ReadLimits& limits) : text_(text), limits_(limits) {}

  Status Parse(CsvRows& out) {
    bool is_first = true;
    while (at_ < text_.size()) {
      const uint32_t first_line = line_;
      MSPROBE_TRY(Record());
      if (IsBlank()) continue;
      const std::span<const std::string> record(fields_.data(), used_);
      if (is_first) {
        is_first = false;
        columns_ = record.size();
        MSPROBE_TRY(out.Header(record));
      } else {
        MSPROBE_TRY(CheckRow(record, first_line));
        MSPROBE_TRY(out.Row(record, first_line));
      }
    }
    return {};
  }

 private:
  // A line without anything on it; a lone "" is a row with an empty cell.
  bool IsBlank() const { return used_ == 1 && fields_[0].empty() && !had_quotes_; }

  Status CheckRow(std::span<const std::string> record, uint32_t line) {
    const bool is_short = limits_.allow_short_rows && record.size() < columns_;
    if (record.size() != columns_ && !is_short) {
      return Error(ErrorCode::kMalformed,
                   fmt::format("the row has {} fields, the header has {}", record.size(), columns_))
          .AtLine(line, 0);
    }
    if (rows_++ >= limits_.max_rows)
      return TooMuch(fmt::format("more than {} rows", limits_.max_rows), line);
    cells_ += columns_;
    if (cells_ > limits_.max_cells)
      return TooMuch(fmt::format("more than {} cells", limits_.max_cells), line);
    return {};
  }

  // From at_ up to and with the end of the line.
  Status Record() {
    used_ = 0;
    had_quotes_ = false;
    while (true) {
      if (used_ == fields_.size()) fields_.emplace_back();
      std::string& field = fields_[used_++];
      MSPROBE_TRY(at_ < text_.size() && text_[at_] == '"' ? Quoted(field) : Plain(field));
      if (used_ > limits_.max_cells) return TooMuch("too many columns", line_);
      if (at_ >= text_.size()) return {};
      if (text_[at_++] == ',') continue;
      if (text_[at_ - 1] == '\r' && at_ < text_.size() && text_[at_] == '\n') ++at_;
      ++line_;
      return {};
    }
  }

  Status Plain(std::string& field) {
    size_t end = at_;
    while (end < text_.size() && !kEndsField[static_cast<unsigned char>(text_[end])]) ++end;
    if (end - at_ > limits_.max_cell_bytes) return CellTooLong();
    field.assign(text_, at_, end - at_);
    at_ = end;
    return {};
  }

  Status Quoted(std::string& field) {
    const uint32_t first_line = line_;
    field.clear();
    had_quotes_ = true;
    ++at_;
    while (true) {
      const size_t end = text_.find('"', at_);
      if (end == std::string_view::npos) {
        return Error(ErrorCode::kTruncated, "the file ends inside a quoted field that begins here")
            .AtLine(first_line, 0);
      }
      const std::string_view piece = text_.substr(at_, end - at_);
      if (field.size() + piece.size() > limits_.max_cell_bytes) return CellTooLong();
      field += piece;
      line_ += static_cast<uint32_t>(std::count(piece.begin(), piece.end(), '\n'));
      at_ = end + 1;
      if (at_ >= text_.size() || text_[at_] != '"') break;
      field += '"';
      ++at_;
    }
    if (at_ < text_.size() &&
        std::string_view(",\r\n").find(text_[at_]) == std::string_view::npos) {
      return Error(ErrorCode::kMalformed, "text follows the closing quote of a field")
          .AtLine(line_, 0)
          .Hint("expected a comma or the end of the line");
    }
    return {};
  }

  Error CellTooLong() const {
    return TooMuch(fmt::format("a cell of more than {} bytes", limits_.max_cell_bytes), line_);
  }
  static Error TooMuch(std::string what, uint32_t line) {
    return Error(ErrorCode::kTooLarge, std::move(what)).AtLine(line, 0);
  }

  const std::string_view text_;
  const ReadLimits& limits_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  bool had_quotes_ = false;
  uint64_t cells_ = 0, rows_ = 0;
  size_t columns_ = 0;
  std::vector<std::string> fields_;  // of the current record; the first used_ of them
  size_t used_ = 0;
};

// Keeps everything.
class TableRows final : public CsvRows {
 public:
  Status Header(std::span<const std::string> columns) override {
    table.columns.assign(columns.begin(), columns.end());
    return {};
  }
  Status Row(std::span<const std::string> cells, uint32_t) override {
    table.rows.emplace_back(cells.begin(), cells.end());
    return {};
  }
  TextTable table;
};

// The first byte that is not UTF-8 lies in the last line for which the text before it still is.
Error NotUtf8(std::string_view text) {
  uint32_t line = 1;
  uint64_t offset = 0;
  while (true) {
    const size_t end = text.find('\n', offset);
    const std::string_view one =
        text.substr(offset, end == std::string_view::npos ? end : end - offset);
    if (!IsValidUtf8(one) || end == std::string_view::npos) break;
    offset = end + 1;
    ++line;
  }
  return Error(ErrorCode::kMalformed, "the line is not UTF-8 text")
      .AtLine(line, 0)
      .AtOffset(offset);
}

}  // namespace

Status ReadCsvRows(const std::string& path, CsvRows& out, const ReadLimits& limits) {
  MSPROBE_ASSIGN(const std::string content, ReadTextFile(path, limits.max_bytes));
  std::string_view text = content;
  if (!IsValidUtf8(text)) return NotUtf8(text).At(path);
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  Status status = CsvParser(text, limits).Parse(out);
  if (!status.ok()) return std::move(status).error().At(path);
  return {};
}

Result<TextTable> ReadCsv(const std::string& path, const ReadLimits& limits) {
  TableRows rows;
  MSPROBE_TRY(ReadCsvRows(path, rows, limits));
  return std::move(rows.table);
}

}  // namespace msprobe::report
