#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
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
  for (size_t quote; (quote = text.find('"')) != std::string_view::npos;) {
    out.append(text, 0, quote + 1);
    out += '"';
    text.remove_prefix(quote + 1);
  }
  out += text;
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

// What a byte means for the text that it stands in; most texts are short, and a table look-up per
// byte beats vector code there.
enum Kinds : uint8_t { kControl = 1, kHigh = 2, kNeedsQuotes = 4, kSemicolon = 8 };
constexpr std::array<uint8_t, 256> kKindOfByte = [] {
  constexpr size_t kFirstPrintable = 0x20, kDelete = 0x7F;
  std::array<uint8_t, 256> out{};
  for (size_t b = 0; b < out.size(); ++b) {
    if (b < kFirstPrintable || b == kDelete) out[b] = kControl;
    if (b > kDelete) out[b] = kHigh;
  }
  out['\t'] = 0;
  out[','] = out['"'] = out['\n'] = out['\r'] = kNeedsQuotes;
  out[';'] = kSemicolon;
  return out;
}();

void AppendText(std::string& out, std::string_view text) {
  if (text.empty()) return;
  unsigned kinds = 0;
  for (const char c : text) kinds |= kKindOfByte[static_cast<unsigned char>(c)];
  if ((kinds & kControl) != 0 || ((kinds & kHigh) != 0 && !IsValidUtf8(text))) {
    const std::string readable = Readable(text);
    return AppendText(out, readable);
  }
  const bool apostrophe =
      ((kinds & kSemicolon) != 0 || MayStartFormula(text.front())) && LooksExecutable(text);
  if ((kinds & kNeedsQuotes) != 0) return AppendQuoted(out, text, apostrophe);
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

// Texts of the numbers printed last: the columns of two sides hold the same figures, mostly, and
// the shortest digits of a double take longer than all else about its cell.
class RecentNumbers {
 public:
  void Append(std::string& out, double value) {
    const auto bits = std::bit_cast<uint64_t>(value);
    Slot& slot = slots_[(bits * 0x9E3779B97F4A7C15u) >> 59];
    if (slot.size == 0 || slot.bits != bits) {
      const size_t begin = out.size();
      AppendDouble(out, value);
      const size_t size = out.size() - begin;
      if (size > slot.text.size()) return;
      slot.bits = bits;
      slot.size = static_cast<uint8_t>(size);
      out.copy(slot.text.data(), size, begin);
      return;
    }
    out.append(slot.text.data(), slot.size);
  }

 private:
  struct Slot {
    uint64_t bits = 0;
    uint8_t size = 0;  // 0: empty
    std::array<char, 31> text = {};
  };
  std::array<Slot, 32> slots_;
};

void AppendCell(std::string& out, const Cell& cell, RecentNumbers& numbers) {
  switch (cell.kind) {
    case Cell::Kind::kEmpty:
      return;
    case Cell::Kind::kText:
      return AppendText(out, cell.text);
    case Cell::Kind::kDouble:
      return numbers.Append(out, cell.d);
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
      AppendCell(buffer_, cell, numbers_);
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
  RecentNumbers numbers_;
  uint64_t rows_in_file_ = 0;
  std::vector<AtomicFile> files_;  // all but the last are complete; none has its final name yet
  std::optional<Error> failure_;
};

}  // namespace

std::unique_ptr<TableWriter> NewCsvWriter(std::string path, CsvOptions options) {
  return std::make_unique<CsvWriter>(std::move(path), options);
}

}  // namespace msprobe::report
