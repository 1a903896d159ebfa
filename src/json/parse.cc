// The event parser: RapidJSON's iterative reader over a block stream of our own. Three things are
// ours because the library lacks them: strings are scanned eight bytes at a time (a Transcoder of
// our encoding), numbers arrive as their literal (so that integers and floats stay apart and
// nothing is rounded twice), and lone surrogates are accepted.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "json/json.h"

#define RAPIDJSON_ASSERT(x) static_cast<void>(0)
#include <rapidjson/error/en.h>
#include <rapidjson/reader.h>

namespace msprobe::json {
namespace {

constexpr size_t kBlock = 256u << 10;
constexpr size_t kHistory = 1024;  // bytes kept behind the cursor: the longest number literal
constexpr size_t kPad = 16;        // zero bytes behind the block: sentinel and room for wide loads
constexpr uint64_t kMaxString =
    std::numeric_limits<uint32_t>::max() - 1u;  // the library counts in 32 bits

// Where the text comes from.
class Source {
 public:
  explicit Source(std::string_view text) : text_(text), size_(text.size()) {}
  explicit Source(const InputFile& file) : file_(&file), size_(file.size()) {}
  uint64_t size() const { return size_; }
  Status ReadAt(uint64_t offset, std::span<char> out) const {
    if (file_ != nullptr) return file_->ReadAt(offset, std::as_writable_bytes(out));
    std::memcpy(out.data(), text_.data() + offset, out.size());
    return {};
  }
  Error Place(Error error) const {
    return file_ != nullptr ? std::move(error).At(file_->path()) : std::move(error);
  }

 private:
  const InputFile* file_ = nullptr;
  std::string_view text_;
  uint64_t size_;
};

uint64_t Load64(const char* p) {
  uint64_t v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

// High bit set in (at least the first of) the bytes that end a plain run: '"', '\\' and everything
// below 0x20.
uint64_t StringStops(uint64_t v) {
  constexpr uint64_t kOnes = 0x0101010101010101u;
  constexpr uint64_t kHigh = 0x8080808080808080u;
  const auto zero_bytes = [](uint64_t x) { return (x - kOnes) & ~x & kHigh; };
  return zero_bytes(v ^ (kOnes * '"')) | zero_bytes(v ^ (kOnes * '\\')) |
         ((v - kOnes * 0x20) & ~v & kHigh);
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Code unit of the escape "\uXXXX" at `p`, or -1.
int EscapedUnit(const char* p) {
  if (p[0] != '\\' || p[1] != 'u') return -1;
  int unit = 0;
  for (int i = 2; i < 6; ++i) {
    const int digit = HexDigit(p[i]);
    if (digit < 0) return -1;
    unit = unit * 16 + digit;
  }
  return unit;
}

// The stream that RapidJSON reads from, and, in its in-situ mode, puts decoded strings into.
class Stream {
 public:
  using Ch = char;

  Stream(const Source& source, uint64_t max_string)
      : source_(source), max_string_(std::min(max_string, kMaxString)) {
    const size_t block = static_cast<size_t>(std::min<uint64_t>(kBlock, source.size()));
    capacity_ = kHistory + block;
    buffer_ = std::make_unique_for_overwrite<char[]>(capacity_ + kPad);
    cur_ = end_ = buffer_.get();
    std::memset(end_, 0, kPad);
    Refill();
    if (std::string_view(cur_, static_cast<size_t>(end_ - cur_)).starts_with("\xEF\xBB\xBF"))
      cur_ += 3;
  }

  // RapidJSON's input side. Take() follows a Peek() of the same character.
  char Peek() {
    if (*cur_ == '\0') [[unlikely]]
      return PeekSlow();
    return *cur_;
  }
  char Take() {
    if (*cur_ == '\\') [[unlikely]]
      OnBackslash();
    return *cur_++;
  }
  size_t Tell() const {
    return static_cast<size_t>(next_offset_ - static_cast<uint64_t>(end_ - cur_));
  }

  // RapidJSON's output side. Only the closing '\0' of a string arrives as 0.
  char* PutBegin() {
    length_ = 0;
    in_place_ = nullptr;
    return cur_;
  }
  void Put(char c) {
    if (c != '\0') Append(&c, 1);
  }
  size_t PutEnd(char*) { return length_ + 1; }
  void Flush() {}

  void SkipBlanks() {
    for (;;) {
      // A run of blanks at once: the first byte that is none shows as the lowest bit set.
      uint64_t other;
      while ((other = Load64(cur_) ^ 0x2020202020202020u) == 0) cur_ += 8;
      cur_ += std::countr_zero(other) / 8;
      const char c = *cur_;
      if (c == ' ' || c == '\n' || c == '\r' || c == '\t') {
        ++cur_;
      } else if (c != '\0' || PeekSlow() == '\0') {
        return;
      }
    }
  }

  // Moves a run of plain characters into the string.
  void TakeRun() {
    const char* p = cur_;
    uint64_t stops;
    while ((stops = StringStops(Load64(p))) == 0) p += 8;
    p += std::countr_zero(stops) / 8;
    p = std::min<const char*>(p, end_);
    const char* const run = cur_;
    const size_t n = static_cast<size_t>(p - run);
    cur_ += n;
    if (length_ == 0 && in_place_ == nullptr && n <= max_string_) {
      in_place_ = run;
      length_ = n;
    } else {
      Append(run, n);
    }
  }

  void AppendCodePoint(uint32_t c) {
    if (pending_high_) c -= 0x400;  // see OnBackslash
    pending_high_ = false;
    std::array<char, 4> b;
    size_t n = 0;
    const auto put = [&](uint32_t byte) {
      b[n++] = static_cast<char>(static_cast<unsigned char>(byte));
    };
    if (c < 0x80) {
      put(c);
    } else if (c < 0x800) {
      put(0xC0 | (c >> 6));
      put(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
      put(0xE0 | (c >> 12));
      put(0x80 | ((c >> 6) & 0x3F));
      put(0x80 | (c & 0x3F));
    } else {
      put(0xF0 | (c >> 18));
      put(0x80 | ((c >> 12) & 0x3F));
      put(0x80 | ((c >> 6) & 0x3F));
      put(0x80 | (c & 0x3F));
    }
    Append(b.data(), n);
  }

  std::string_view text() const {
    return {in_place_ != nullptr ? in_place_ : scratch_.data(), length_};
  }
  // The last `n` characters taken; empty when they are no longer there.
  std::string_view Last(size_t n) const {
    if (n > kHistory) return {};
    return {cur_ - n, n};
  }

  bool AtEnd() { return Peek() == '\0' && Tell() >= source_.size(); }
  const std::optional<Error>& error() const { return error_; }

 private:
  char PeekSlow() {
    if (cur_ == end_) Refill();
    return *cur_;
  }

  // Drops what lies more than kHistory behind the cursor and reads on.
  void Refill() {
    if (error_ || next_offset_ >= source_.size()) return;
    Spill();
    const size_t keep = std::min(kHistory, static_cast<size_t>(cur_ - buffer_.get()));
    const size_t kept = keep + static_cast<size_t>(end_ - cur_);
    std::memmove(buffer_.get(), cur_ - keep, kept);
    cur_ = buffer_.get() + keep;
    end_ = buffer_.get() + kept;
    const size_t n =
        static_cast<size_t>(std::min<uint64_t>(capacity_ - kept, source_.size() - next_offset_));
    if (auto status = source_.ReadAt(next_offset_, {end_, n}); !status.ok()) {
      Fail(std::move(status).error());
      return;
    }
    end_ += n;
    next_offset_ += n;
    std::memset(end_, 0, kPad);
  }

  // The reader sees the end of the text where an error of ours happened.
  void Fail(Error error) {
    if (!error_) error_ = std::move(error);
    const uint64_t left = static_cast<uint64_t>(end_ - cur_);
    next_offset_ -= left;
    end_ = cur_;
    std::memset(end_, 0, kPad);
  }

  void Spill() {
    if (in_place_ == nullptr) return;
    scratch_.assign(in_place_, length_);
    in_place_ = nullptr;
  }

  void Append(const char* p, size_t n) {
    if (length_ + n > max_string_) {
      Fail(Error(ErrorCode::kTooLarge, fmt::format("a string of more than {} bytes", max_string_))
               .AtOffset(Tell()));
      return;
    }
    if (in_place_ != nullptr) {
      Spill();
    } else {
      scratch_.resize(length_);
    }
    scratch_.append(p, n);
    length_ += n;
  }

  // The library refuses "\ud8xx" that no low surrogate follows. It is shown the low surrogate of
  // the same ten bits instead, and AppendCodePoint puts the high one back. (The text is a copy, so
  // the change of one digit harms nobody.)
  void OnBackslash() {
    if (Tell() == escaped_) return;  // the second of two
    escaped_ = Tell() + 1;
    if (end_ - cur_ < 12) Refill();
    char* const p = cur_;
    const int unit = EscapedUnit(p);
    if (unit < 0xD800 || unit > 0xDBFF) return;
    const int next = EscapedUnit(p + 6);
    if (next >= 0xDC00 && next <= 0xDFFF) return;
    p[3] = static_cast<char>("cdef"[(unit >> 8) & 3]);
    pending_high_ = true;
  }

  const Source& source_;
  const uint64_t max_string_;
  std::unique_ptr<char[]> buffer_;
  size_t capacity_ = 0;
  char* cur_ = nullptr;
  char* end_ = nullptr;
  uint64_t next_offset_ = 0;  // of the byte after end_
  // The string being read: [in_place_, length_) of the buffer while it has no escape, else
  // scratch_.
  const char* in_place_ = nullptr;
  size_t length_ = 0;
  std::string scratch_;
  bool pending_high_ = false;
  uint64_t escaped_ = 0;  // offset of the character after the last backslash
  std::optional<Error> error_;
};

// UTF-8 as the library sees it: bytes pass unchecked, surrogates are encoded like any other code
// point (WTF-8).
struct Encoding {
  using Ch = char;
  enum { supportUnicode = 1 };
  template <class Out>
  static void Encode(Out& out, unsigned code) {
    if constexpr (std::is_same_v<Out, Stream>) {
      out.AppendCodePoint(code);
    } else {
      rapidjson::UTF8<>::Encode(out, code);
    }
  }
};

}  // namespace
}  // namespace msprobe::json

namespace rapidjson {

template <>
struct Transcoder<msprobe::json::Encoding, msprobe::json::Encoding> {
  template <class In, class Out>
  static bool Transcode(In& in, Out& out) {
    if constexpr (std::is_same_v<Out, msprobe::json::Stream>) {
      in.TakeRun();
    } else {
      out.Put(in.Take());
    }
    return true;
  }
  template <class In, class Out>
  static bool Validate(In& in, Out& out) {
    return Transcode(in, out);
  }
};

template <>
inline void SkipWhitespace(msprobe::json::Stream& stream) {
  stream.SkipBlanks();
}

}  // namespace rapidjson

namespace msprobe::json {
namespace {

// Between RapidJSON's callbacks and Handler: depth, numbers, and the reason of a stop.
class Adapter {
 public:
  Adapter(Stream& stream, Handler& handler, const Limits& limits)
      : stream_(stream), handler_(handler), max_depth_(limits.max_depth) {}

  bool Null() { return handler_.Null(); }
  bool Bool(bool value) { return handler_.Bool(value); }
  // Numbers come as literals only (kParseNumbersAsStringsFlag); the rest of the concept is never
  // called.
  bool Int(int) { return false; }
  bool Uint(unsigned) { return false; }
  bool Int64(int64_t) { return false; }
  bool Uint64(uint64_t) { return false; }
  bool Double(double) { return false; }

  bool RawNumber(const char*, rapidjson::SizeType length, bool) {
    const std::string_view literal = stream_.Last(length);
    if (literal.empty()) {
      return Refuse(Error(ErrorCode::kTooLarge,
                          fmt::format("a number of more than {} characters", kHistory)));
    }
    const char* const begin = literal.data();
    const char* const end = begin + literal.size();
    const bool integer =
        std::all_of(begin + (literal[0] == '-'), end, [](char c) { return c >= '0' && c <= '9'; });
    if (integer) {
      int64_t value = 0;
      if (std::from_chars(begin, end, value).ec == std::errc()) return handler_.Int(value);
      return handler_.BigInt(literal);
    }
    const char first = literal[literal[0] == '-' && literal.size() > 1];
    if (first == 'N' || first == 'I') return NonFinite(literal);
    double value = 0;
    if (std::from_chars(begin, end, value).ec == std::errc::result_out_of_range)
      value = std::strtod(std::string(literal).c_str(), nullptr);  // inf or 0, as Python reads it
    return handler_.Double(value);
  }
  bool String(const char*, rapidjson::SizeType, bool) {
    return stream_.error() ? false : handler_.String(stream_.text());
  }
  bool Key(const char*, rapidjson::SizeType, bool) {
    return stream_.error() ? false : handler_.Key(stream_.text());
  }
  bool StartObject() { return Enter() && handler_.StartObject(); }
  bool EndObject(rapidjson::SizeType) {
    --depth_;
    return handler_.EndObject();
  }
  bool StartArray() { return Enter() && handler_.StartArray(); }
  bool EndArray(rapidjson::SizeType) {
    --depth_;
    return handler_.EndArray();
  }

  const std::optional<Error>& error() const { return error_; }

 private:
  bool NonFinite(std::string_view literal) {
    if (literal == "NaN") return handler_.Double(std::numeric_limits<double>::quiet_NaN());
    if (literal == "Infinity") return handler_.Double(std::numeric_limits<double>::infinity());
    if (literal == "-Infinity") return handler_.Double(-std::numeric_limits<double>::infinity());
    // "Inf" and "-NaN", which the library takes. AtEnd() may move the text, hence the copy.
    const std::string copy(literal);
    const bool cut = literal.ends_with("Inf") && stream_.AtEnd();
    return Refuse(cut ? Error(ErrorCode::kTruncated, "the JSON text ends too early")
                      : Error(ErrorCode::kMalformed, fmt::format("\"{}\" is no JSON value", copy)));
  }
  bool Enter() {
    if (++depth_ <= max_depth_) return true;
    return Refuse(
        Error(ErrorCode::kTooLarge, fmt::format("nested deeper than {} levels", max_depth_)));
  }
  bool Refuse(Error error) {
    error_ = std::move(error).AtOffset(stream_.Tell());
    return false;
  }

  Stream& stream_;
  Handler& handler_;
  const uint32_t max_depth_;
  uint32_t depth_ = 0;
  std::optional<Error> error_;
};

// Adds line and column (in characters, from 1) of `offset`. Reads the text once more: only errors
// pay.
Error AddLine(const Source& source, Error error) {
  const uint64_t offset = std::min(error.offset.value_or(0), source.size());
  std::string block;
  uint64_t line = 1;
  uint64_t column = 1;
  for (uint64_t at = 0; at < offset; at += block.size()) {
    block.resize(static_cast<size_t>(std::min<uint64_t>(kBlock, offset - at)));
    if (!source.ReadAt(at, block).ok()) return error;
    size_t line_start = 0;
    const auto newlines = static_cast<uint64_t>(std::count(block.begin(), block.end(), '\n'));
    if (newlines > 0) {
      line += newlines;
      column = 1;
      line_start = block.rfind('\n') + 1;
    } else if (at == 0 && block.starts_with("\xEF\xBB\xBF")) {
      line_start = 3;
    }
    column += static_cast<uint64_t>(
        std::count_if(block.begin() + static_cast<std::ptrdiff_t>(line_start), block.end(),
                      [](char c) { return (static_cast<unsigned char>(c) & 0xC0u) != 0x80u; }));
  }
  const auto cut = [](uint64_t v) {
    return static_cast<uint32_t>(std::min<uint64_t>(v, std::numeric_limits<uint32_t>::max()));
  };
  return std::move(error).AtLine(cut(line), cut(column));
}

Error SyntaxError(const rapidjson::ParseResult& result, bool at_end, const Source& source) {
  const uint64_t offset = std::min<uint64_t>(result.Offset(), source.size());
  if (result.Code() == rapidjson::kParseErrorNumberTooBig)
    return Error(ErrorCode::kTooLarge, "a number beyond the range of double").AtOffset(offset);
  if (at_end) {
    const char* message = source.size() == 0 ? "empty, not JSON" : "the JSON text ends too early";
    return Error(ErrorCode::kTruncated, message).AtOffset(source.size());
  }
  std::string message = rapidjson::GetParseError_En(result.Code());
  if (!message.empty() && message.back() == '.') message.pop_back();
  return Error(ErrorCode::kMalformed, "not JSON: " + message).AtOffset(offset);
}

Result<ParseInfo> ParseSource(const Source& source, Handler& handler, const Limits& limits) {
  if (source.size() > limits.max_bytes) {
    return source.Place(Error(ErrorCode::kTooLarge, fmt::format("{} bytes of JSON; the limit is {}",
                                                                source.size(), limits.max_bytes)));
  }
  Stream stream(source, limits.max_string_bytes);
  Adapter adapter(stream, handler, limits);
  rapidjson::GenericReader<Encoding, Encoding> reader;
  constexpr unsigned kFlags = rapidjson::kParseIterativeFlag | rapidjson::kParseInsituFlag |
                              rapidjson::kParseNumbersAsStringsFlag |
                              rapidjson::kParseNanAndInfFlag;
  const rapidjson::ParseResult result = reader.Parse<kFlags>(stream, adapter);
  if (stream.error()) return AddLine(source, source.Place(*stream.error()));
  if (adapter.error()) return AddLine(source, source.Place(*adapter.error()));
  if (result.IsError() && result.Code() == rapidjson::kParseErrorTermination)
    return ParseInfo{stream.Tell(), true};
  const bool at_end = stream.AtEnd();
  if (result.IsError()) return AddLine(source, source.Place(SyntaxError(result, at_end, source)));
  if (!at_end) {  // a NUL byte, which the library takes for the end
    return AddLine(
        source,
        source.Place(Error(ErrorCode::kMalformed, "not JSON: a NUL byte").AtOffset(stream.Tell())));
  }
  return ParseInfo{stream.Tell(), false};
}

}  // namespace

Result<ParseInfo> Parse(std::string_view text, Handler& handler, const Limits& limits) {
  return ParseSource(Source(text), handler, limits);
}

Result<ParseInfo> ParseFile(const InputFile& file, Handler& handler, const Limits& limits) {
  return ParseSource(Source(file), handler, limits);
}

}  // namespace msprobe::json
