#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>

#include "base/file.h"
#include "base/text.h"
#include "report/table.h"

namespace msprobe::report {
namespace {

constexpr size_t kFlushBytes = 1u << 20;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// May a text that begins so be something to run? Signs, blanks before them, the lead byte of the
// full-width forms.
bool MayStartFormula(char c) {
  return c == '=' || c == '+' || c == '-' || c == '@' || c == '%' || c == ' ' || c == '\t' ||
         c == '\r' || c == '\n' || c == '\xEF';
}

void AppendQuoted(std::string& out, std::string_view text, bool apostrophe) {
  out += '"';
  if (apostrophe) out += '\'';
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  out += '"';
}

// Control characters but for tab and line ends, and bytes that are no UTF-8, as \xHH: readers of
// csv refuse them.
std::string Readable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t k = text.find_first_of("\n\r\t");
    out += VisibleText(text.substr(0, k));
    if (k == std::string_view::npos) break;
    out += text[k];
    text.remove_prefix(k + 1);
  }
  return out;
}

void AppendText(std::string& out, std::string_view text) {
  if (text.empty()) return;
  // Without branches, so that the compiler makes vector code of it: most texts have none of these.
  uint8_t needs_quotes = 0, has_semicolon = 0, control = 0, high = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    control |= static_cast<uint8_t>(((byte < 0x20) & (c != '\n') & (c != '\r') & (c != '\t')) |
                                    (byte == 0x7F));
    high |= static_cast<uint8_t>(byte >= 0x80);
    needs_quotes |= static_cast<uint8_t>((c == ',') | (c == '"') | (c == '\n') | (c == '\r'));
    has_semicolon |= static_cast<uint8_t>(c == ';');
  }
  if (control != 0 || (high != 0 && !IsValidUtf8(text))) {
    const std::string readable = Readable(text);
    return AppendText(out, readable);
  }
  const bool apostrophe =
      (has_semicolon != 0 || MayStartFormula(text.front())) && LooksExecutable(text);
  if (needs_quotes != 0) return AppendQuoted(out, text, apostrophe);
  if (apostrophe) out += '\'';
  out += text;
}

template <class Integer>
void AppendInteger(std::string& out, Integer value) {
  char digits[24];
  const auto r = std::to_chars(digits, digits + sizeof(digits), value);
  out.append(digits, r.ptr);
}

void AppendDouble(std::string& out, double value) {
  if (std::isnan(value)) return;
  if (std::isinf(value)) {
    out += value > 0 ? " inf" : " -inf";  // a blank in front: spreadsheets show inf as an error
    return;
  }
  // Most cells are small whole numbers, and printing those as integers is several times faster.
  if (std::fabs(value) < 1e15 && value == std::trunc(value) &&
      !(value == 0 && std::signbit(value))) {
    AppendInteger(out, static_cast<int64_t>(value));
    out += ".0";
    return;
  }
  AppendPyFloatRepr(out, value);
}

void AppendCell(std::string& out, const Cell& cell) {
  switch (cell.kind) {
    case Cell::Kind::kEmpty:
      return;
    case Cell::Kind::kText:
      return AppendText(out, cell.text);
    case Cell::Kind::kDouble:
      return AppendDouble(out, cell.d);
    case Cell::Kind::kInt:
      return AppendInteger(out, cell.i);
    case Cell::Kind::kUint:
      return AppendInteger(out, cell.u);
    case Cell::Kind::kBool:
      out += cell.b ? "True" : "False";
      return;
  }
}

class CsvWriter final : public TableWriter {
 public:
  CsvWriter(std::string path, CsvOptions options) : path_(std::move(path)), options_(options) {}

  Status Begin(std::span<const std::string> columns) override {
    columns_ = columns.size();
    for (size_t i = 0; i < columns.size(); ++i) {
      if (i > 0) header_ += ',';
      AppendText(header_, columns[i]);
    }
    EndLine(header_, columns.size());
    return Check(NewFile());
  }

  Status Row(std::span<const Cell> cells, Mark) override {
    if (failure_) return *failure_;
    if (cells.size() != columns_) {
      return Fail(
          Error(ErrorCode::kInternal,
                fmt::format("a row of {} cells in a table of {} columns", cells.size(), columns_))
              .At(path_));
    }
    if (rows_in_file_ == options_.rows_per_file) {
      if (auto s = EndFile(); !s.ok()) return Fail(std::move(s).error());
      if (auto s = NewFile(); !s.ok()) return Fail(std::move(s).error());
    }
    ++rows_in_file_;
    const size_t start = buffer_.size();
    bool first = true;
    for (const Cell& cell : cells) {
      if (!first) buffer_ += ',';
      first = false;
      AppendCell(buffer_, cell);
    }
    if (buffer_.size() == start && columns_ == 1)
      buffer_ += "\"\"";  // an empty line would not be a row
    buffer_ += '\n';
    return buffer_.size() < kFlushBytes ? Status() : Check(FlushBuffer());
  }

  Result<std::vector<std::string>> Finish() override {
    if (failure_) return *failure_;
    if (files_.empty()) return Error(ErrorCode::kInternal, "Finish before Begin").At(path_);
    if (auto s = EndFile(); !s.ok()) return Fail(std::move(s).error()).error();
    std::vector<std::string> written;
    for (size_t i = 0; i < files_.size(); ++i) {
      Status s = files_.size() == 1 ? files_[0].Commit() : CommitPart(files_[i], PartPath(i + 1));
      if (!s.ok()) {
        for (const std::string& done : written) unlink(done.c_str());
        return Fail(std::move(s).error()).error();
      }
      written.push_back(files_.size() == 1 ? path_ : PartPath(i + 1));
    }
    files_.clear();
    return written;
  }

 private:
  // All later calls repeat this error; nothing that was begun stays on disk.
  Status Fail(Error error) {
    failure_ = error;
    files_.clear();
    buffer_.clear();
    return error;
  }
  Status Check(Status status) {
    if (!status.ok()) return Fail(std::move(status).error());
    return status;
  }

  static void EndLine(std::string& out, size_t columns) {
    if (out.empty() && columns == 1) out += "\"\"";
    out += '\n';
  }

  Status NewFile() {
    MSPROBE_ASSIGN(AtomicFile file, AtomicFile::Create(path_));
    files_.push_back(std::move(file));
    rows_in_file_ = 0;
    buffer_.clear();
    buffer_.reserve(kFlushBytes + (64u << 10));
    if (options_.byte_order_mark) buffer_ += kByteOrderMark;
    buffer_ += header_;
    return {};
  }
  Status FlushBuffer() {
    MSPROBE_TRY(files_.back().Write(buffer_));
    buffer_.clear();
    return {};
  }
  Status EndFile() {
    MSPROBE_TRY(FlushBuffer());
    return files_.back().Flush();
  }

  // "dir/name.csv" → "dir/name_part_3.csv".
  std::string PartPath(size_t number) const {
    const std::string_view suffix = path_.ends_with(".csv") ? ".csv" : "";
    return fmt::format("{}_part_{}{}", path_.substr(0, path_.size() - suffix.size()), number,
                       suffix);
  }
  // The file was begun under the name for a single file, since nobody knew how many rows would
  // come.
  Status CommitPart(AtomicFile& file, const std::string& part) {
    MSPROBE_TRY(file.Flush());
    if (rename(file.temporary_path().c_str(), part.c_str()) != 0)
      return ErrnoError(errno, "rename", part);
    return {};
  }

  const std::string path_;
  const CsvOptions options_;
  size_t columns_ = 0;
  std::string header_;
  std::string buffer_;
  uint64_t rows_in_file_ = 0;
  std::vector<AtomicFile> files_;  // all but the last are complete; none has its final name yet
  std::optional<Error> failure_;
};

}  // namespace

std::unique_ptr<TableWriter> NewCsvWriter(std::string path, CsvOptions options) {
  return std::make_unique<CsvWriter>(std::move(path), options);
}

}  // namespace msprobe::report
