#include "formats/npy_header.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "base/text.h"

namespace msprobe::formats {
namespace {

struct Descr {
  std::string_view code;  // without byte order
  DType dtype;
  std::string_view text;
};
constexpr std::array kDescrs = {
    Descr{"b1", DType::kBool, "|b1"}, Descr{"u1", DType::kU8, "|u1"},
    Descr{"i1", DType::kI8, "|i1"},   Descr{"u2", DType::kU16, "<u2"},
    Descr{"i2", DType::kI16, "<i2"},  Descr{"u4", DType::kU32, "<u4"},
    Descr{"i4", DType::kI32, "<i4"},  Descr{"u8", DType::kU64, "<u8"},
    Descr{"i8", DType::kI64, "<i8"},  Descr{"f2", DType::kF16, "<f2"},
    Descr{"f4", DType::kF32, "<f4"},  Descr{"f8", DType::kF64, "<f8"},
    Descr{"c8", DType::kC64, "<c8"},  Descr{"c16", DType::kC128, "<c16"},
};

Error HeaderError(ErrorCode code, std::string_view message, size_t offset) {
  return Error(code, fmt::format("npy header: {}", message)).AtOffset(offset);
}

// Scans the one Python literal that NumPy writes: a dict of a string (or, for structured types,
// something else), a bool and a tuple of integers. Not a general parser: anything else is refused.
class LiteralScanner {
 public:
  LiteralScanner(std::string_view text, size_t base) : text_(text), base_(base) {}

  Result<NpyHeader> Run() {
    NpyHeader header;
    bool has[3] = {};
    if (!Take('{')) return Bad("no dict");
    while (!Take('}')) {
      std::string_view key;
      if (!TakeString(key) || !Take(':')) return Bad("no key");
      const size_t slot = key == "descr" ? 0 : key == "fortran_order" ? 1 : key == "shape" ? 2 : 3;
      if (slot == 3 || has[slot])
        return Bad(fmt::format("key {} is unknown or there twice", VisibleText(key)));
      has[slot] = true;
      if (slot == 0) {
        MSPROBE_TRY(TakeDescr(header));
      } else if (slot == 1) {
        if (!TakeBool(header.fortran_order)) return Bad("fortran_order is no bool");
      } else if (!TakeShape(header.shape)) {
        return Bad("shape is no tuple of sizes");
      }
      if (!Take(',') && !Sees('}')) return Bad("no comma");
    }
    SkipBlanks();
    if (pos_ != text_.size()) return Bad("text after the dict");
    if (!has[0] || !has[1] || !has[2]) return Bad("descr, fortran_order or shape is missing");
    return header;
  }

 private:
  Error Bad(std::string_view message) const {
    return HeaderError(ErrorCode::kMalformed, message, base_ + pos_);
  }
  void SkipBlanks() {
    while (pos_ < text_.size() &&
           (text_[pos_] == ' ' || text_[pos_] == '\n' || text_[pos_] == '\t'))
      ++pos_;
  }
  bool Sees(char c) {
    SkipBlanks();
    return pos_ < text_.size() && text_[pos_] == c;
  }
  bool Take(char c) {
    if (!Sees(c)) return false;
    ++pos_;
    return true;
  }
  bool TakeString(std::string_view& out) {
    if (!Sees('\'') && !Sees('"')) return false;
    const size_t end = text_.find(text_[pos_], pos_ + 1);
    if (end == std::string_view::npos) return false;
    out = text_.substr(pos_ + 1, end - pos_ - 1);
    pos_ = end + 1;
    return out.find('\\') == std::string_view::npos;
  }
  bool TakeBool(bool& out) {
    SkipBlanks();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (!text_.substr(pos_).starts_with(word)) continue;
      pos_ += word.size();
      out = value;
      return true;
    }
    return false;
  }
  bool TakeShape(Shape& out) {
    if (!Take('(')) return false;
    while (!Take(')')) {
      SkipBlanks();
      int64_t extent = 0;
      const auto r = std::from_chars(text_.data() + pos_, text_.data() + text_.size(), extent);
      if (r.ec != std::errc() || extent < 0) return false;
      pos_ = static_cast<size_t>(r.ptr - text_.data());
      if (pos_ < text_.size() && text_[pos_] == 'L') ++pos_;  // Python 2
      out.push_back(extent);
      if (!Take(',')) return out.size() > 1 && Take(')');
    }
    return true;
  }
  Status TakeDescr(NpyHeader& header) {
    if (Sees('['))
      return HeaderError(ErrorCode::kUnsupported, "a structured element type", base_ + pos_);
    std::string_view descr;
    if (!TakeString(descr)) return Bad("descr is no string");
    const char order = descr.empty() ? '\0' : descr[0];
    const bool has_order = order == '<' || order == '>' || order == '|' || order == '=';
    const std::string_view code = has_order ? descr.substr(1) : descr;
    for (const Descr& known : kDescrs) {
      if (known.code != code) continue;
      header.dtype = known.dtype;
      header.swapped = order == '>' && ItemSize(known.dtype) > 1;
      return {};
    }
    return HeaderError(ErrorCode::kUnsupported,
                       fmt::format("element type {}{}", VisibleText(descr), Reason(code)),
                       base_ + pos_);
  }
  static std::string_view Reason(std::string_view code) {
    switch (code.empty() ? '\0' : code[0]) {
      case 'O':
        return ", Python objects: a pickle, which is refused";
      case 'V':
        return ", raw bytes whose meaning (bfloat16 or an 8-bit float?) NumPy did not record";
      case 'U':
      case 'S':
        return ", text";
      case 'M':
      case 'm':
        return ", dates or times";
      case 'f':
      case 'c':
        return ", floating point of this machine's extended precision";
      default:
        return "";
    }
  }

  std::string_view text_;
  size_t base_;
  size_t pos_ = 0;
};

}  // namespace

std::string_view NpyDescr(DType dtype) {
  for (const Descr& known : kDescrs) {
    if (known.dtype == dtype) return known.text;
  }
  return {};
}

Result<NpyHeader> ParseNpyHeader(Bytes start) {
  ByteReader reader(start);
  const auto magic = reader.Take(kNpyMagic.size());
  if (!magic) return HeaderError(ErrorCode::kTruncated, "ends early", start.size());
  if (AsText(*magic) != kNpyMagic) return HeaderError(ErrorCode::kMalformed, "no .npy magic", 0);
  const auto major = reader.Read<uint8_t>();
  const auto minor = reader.Read<uint8_t>();
  if (!major || !minor) return HeaderError(ErrorCode::kTruncated, "ends early", start.size());
  if (*major < 1 || *major > 3 || *minor != 0)
    return HeaderError(ErrorCode::kUnsupported, fmt::format("version {}.{}", *major, *minor),
                       kNpyMagic.size());
  std::optional<size_t> length;
  if (*major == 1) {
    if (const auto n = reader.Read<uint16_t>()) length = *n;
  } else {
    if (const auto n = reader.Read<uint32_t>()) length = *n;
  }
  if (!length) return HeaderError(ErrorCode::kTruncated, "ends early", start.size());
  if (*length > kNpyMaxHeader)
    return HeaderError(ErrorCode::kTooLarge, fmt::format("{} bytes", *length), 8);
  const size_t base = reader.position();
  const auto text = reader.Take(*length);
  if (!text) return HeaderError(ErrorCode::kTruncated, "ends early", start.size());
  MSPROBE_ASSIGN(NpyHeader header, LiteralScanner(AsText(*text), base).Run());
  header.data_offset = reader.position();
  return header;
}

}  // namespace msprobe::formats
