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

// The first byte that is not UTF-8 lies in the last line for which the text before it still is.
// `line` and `begin`: where the text begins in the file.
Error NotUtf8(std::string_view text, uint32_t line, uint64_t begin) {
  uint64_t offset = 0;
  while (true) {
    const size_t end = text.find('\n', offset);
    const std::string_view one =
        text.substr(offset, end == std::string_view::npos ? end : end - offset);
    if (!IsValidUtf8(one) || end == std::string_view::npos) break;
    offset = end + 1;
    ++line;
  }
  const bool is_utf16 =
      begin == 0 && (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"));
  Error error(ErrorCode::kMalformed,
              is_utf16 ? "the file is UTF-16, not UTF-8" : "the line is not UTF-8 text");
  return std::move(error)
      .AtLine(line, 0)
      .AtOffset(begin + offset)
      .Hint("save it as UTF-8, with or without byte-order mark");
}

// Reads a file through a window that holds at least one whole record, so that memory does not
// depend on the size of the file.
class CsvParser {
 public:
  CsvParser(const InputFile& file, const ReadLimits& limits) : file_(file), limits_(limits) {}

  Status Parse(CsvRows& out) {
    MSPROBE_TRY(Fill(kWindow));
    if (text_.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
    bool is_first = true;
    while (true) {
      const uint32_t first_line = line_;
      MSPROBE_ASSIGN(const bool more, NextRecord(out));
      if (!more) return {};
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
  static constexpr uint64_t kWindow = 1 << 20;
  static constexpr uint64_t kMaxRecord = 256 << 20;

  bool SeesTheEnd() const { return begin_ + window_.size() >= file_.size(); }

  // Drops what was read and takes up to `bytes` more of the file.
  Status Fill(uint64_t bytes) {
    window_.erase(0, at_);
    begin_ += at_;
    at_ = 0;
    const uint64_t kept = window_.size();
    window_.resize(kept + std::min(bytes, file_.size() - begin_ - kept));
    text_ = window_;
    return file_.ReadAt(begin_ + kept, std::as_writable_bytes(std::span(window_).subspan(kept)));
  }

  // The next record into fields_; false at the end of the file.
  Result<bool> NextRecord(CsvRows& out) {
    const uint32_t first_line = line_;
    while (at_ < text_.size() || !SeesTheEnd()) {
      const size_t begin = at_;
      const Status status = Record();
      const bool is_cut = status.ok() ? at_ + 1 >= text_.size()  // a line feed may follow
                                      : status.error().code == ErrorCode::kTruncated;
      if (SeesTheEnd() || !is_cut) {
        const std::string_view record = text_.substr(begin, at_ - begin);
        if (!IsValidUtf8(record)) return NotUtf8(record, first_line, begin_ + begin);
        MSPROBE_TRY(status);
        return true;
      }
      at_ = begin;
      line_ = first_line;
      if (text_.size() - begin > kMaxRecord)
        return TooMuch(fmt::format("a row of more than {} bytes", kMaxRecord), first_line);
      MSPROBE_TRY(Fill(std::max<uint64_t>(kWindow, text_.size() - begin)));
      out.Progress(begin_, file_.size());
    }
    return false;
  }

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
        if (field.size() + text_.size() - at_ > limits_.max_cell_bytes) return CellTooLong();
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

  const InputFile& file_;
  const ReadLimits& limits_;
  std::string window_;     // of the file, from begin_ on
  std::string_view text_;  // of the window
  uint64_t begin_ = 0;
  size_t at_ = 0;  // in the window
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

}  // namespace

Status ReadCsvRows(const std::string& path, CsvRows& out, const ReadLimits& limits) {
  MSPROBE_ASSIGN(const InputFile file, InputFile::Open(path));
  if (file.size() > limits.max_bytes) {
    return Error(ErrorCode::kTooLarge, fmt::format("the file has {} bytes, at most {} are read",
                                                   file.size(), limits.max_bytes))
        .At(path);
  }
  Status status = CsvParser(file, limits).Parse(out);
  if (!status.ok()) return std::move(status).error().At(path);
  return {};
}

Result<TextTable> ReadCsv(const std::string& path, const ReadLimits& limits) {
  TableRows rows;
  MSPROBE_TRY(ReadCsvRows(path, rows, limits));
  return std::move(rows.table);
}

}  // namespace msprobe::report
