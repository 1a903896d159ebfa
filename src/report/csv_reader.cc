#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "base/text.h"
#include "report/table.h"

namespace msprobe::report {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

class CsvParser {
 public:
  CsvParser(std::string_view text, const ReadLimits& limits) : text_(text), limits_(limits) {}

  Result<TextTable> Parse() {
    std::vector<std::string> record;
    bool is_first = true;
    while (at_ < text_.size()) {
      const uint32_t first_line = line_;
      MSPROBE_TRY(Record(record));
      if (IsBlank(record)) continue;
      if (is_first) {
        is_first = false;
        table_.columns = std::move(record);
      } else {
        MSPROBE_TRY(AddRow(std::move(record), first_line));
      }
      record = {};
      record.reserve(table_.columns.size());
    }
    return std::move(table_);
  }

 private:
  // A line without anything on it; a lone "" is a row with an empty cell.
  bool IsBlank(const std::vector<std::string>& record) const {
    return record.size() == 1 && record[0].empty() && !had_quotes_;
  }

  Status AddRow(std::vector<std::string> record, uint32_t line) {
    const size_t columns = table_.columns.size();
    if (record.size() != columns) {
      return Error(ErrorCode::kMalformed,
                   fmt::format("the row has {} fields, the header has {}", record.size(), columns))
          .AtLine(line, 0);
    }
    if (table_.rows.size() >= limits_.max_rows)
      return TooMuch(fmt::format("more than {} rows", limits_.max_rows), line);
    cells_ += columns;
    if (cells_ > limits_.max_cells)
      return TooMuch(fmt::format("more than {} cells", limits_.max_cells), line);
    table_.rows.push_back(std::move(record));
    return {};
  }

  // From at_ up to and with the end of the line.
  Status Record(std::vector<std::string>& fields) {
    fields.clear();
    had_quotes_ = false;
    while (true) {
      std::string field;
      MSPROBE_TRY(at_ < text_.size() && text_[at_] == '"' ? Quoted(field) : Plain(field));
      fields.push_back(std::move(field));
      if (fields.size() > limits_.max_cells) return TooMuch("too many columns", line_);
      if (at_ >= text_.size()) return {};
      if (text_[at_++] == ',') continue;
      if (text_[at_ - 1] == '\r' && at_ < text_.size() && text_[at_] == '\n') ++at_;
      ++line_;
      return {};
    }
  }

  Status Plain(std::string& field) {
    const size_t end = std::min(text_.find_first_of(",\r\n", at_), text_.size());
    if (end - at_ > limits_.max_cell_bytes) return CellTooLong();
    field.assign(text_, at_, end - at_);
    at_ = end;
    return {};
  }

  Status Quoted(std::string& field) {
    const uint32_t first_line = line_;
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
  uint64_t cells_ = 0;
  TextTable table_;
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

Result<TextTable> ReadCsv(const std::string& path, const ReadLimits& limits) {
  MSPROBE_ASSIGN(const std::string content, ReadTextFile(path, limits.max_bytes));
  std::string_view text = content;
  if (!IsValidUtf8(text)) return NotUtf8(text).At(path);
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  auto table = CsvParser(text, limits).Parse();
  if (!table.ok()) return std::move(table).error().At(path);
  return table;
}

}  // namespace msprobe::report
