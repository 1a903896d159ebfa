#include "report/text_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "report/table.h"

namespace msprobe::report {
namespace {

constexpr size_t kMaxCellUnits = 32767;  // UTF-16 units that a cell of xlsx may hold
constexpr std::string_view kEllipsis = "\u2026";

// ASCII and full-width forms of + - = % @.
bool StartsFormula(std::string_view text) {
  if (text.empty()) return false;
  const char c = text.front();
  if (c == '+' || c == '-' || c == '=' || c == '%' || c == '@') return true;
  constexpr std::array<std::string_view, 5> kFullWidth = {"\uFF0B", "\uFF0D", "\uFF1D", "\uFF05",
                                                          "\uFF20"};
  return std::any_of(kFullWidth.begin(), kFullWidth.end(),
                     [&](std::string_view w) { return text.starts_with(w); });
}

bool IsNumber(std::string_view text) {
  double ignored;
  return ParsePyFloat(text, ignored);
}

bool AllPiecesAreNumbers(std::string_view text) {
  while (true) {
    const size_t end = text.find(';');
    if (!IsNumber(text.substr(0, end))) return false;
    if (end == std::string_view::npos) return true;
    text.remove_prefix(end + 1);
  }
}

std::string_view WithoutLeadingBlanks(std::string_view text) {
  const size_t start = text.find_first_not_of(" \t\r\n");
  return start == std::string_view::npos ? std::string_view() : text.substr(start);
}

bool IsHex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

// Does "_xHHHH_" stand at `i`?
bool LooksEscaped(std::string_view text, size_t i) {
  return i + 7 <= text.size() && text[i] == '_' && text[i + 1] == 'x' && IsHex(text[i + 2]) &&
         IsHex(text[i + 3]) && IsHex(text[i + 4]) && IsHex(text[i + 5]) && text[i + 6] == '_';
}

// One character of UTF-8, or of WTF-8 when `code` is a surrogate; one byte with kInvalid when it is
// neither.
constexpr uint32_t kInvalid = 0xFFFFFFFF;
size_t Decode(std::string_view text, size_t i, uint32_t& code) {
  const auto byte = [&](size_t k) {
    return static_cast<uint32_t>(static_cast<unsigned char>(text[k]));
  };
  const uint32_t b0 = byte(i);
  if (b0 < 0x80) return code = b0, 1;
  const size_t n = b0 >= 0xF0 ? 4 : b0 >= 0xE0 ? 3 : 2;
  code = kInvalid;
  if (b0 < 0xC2 || b0 > 0xF4 || i + n > text.size()) return 1;
  uint32_t c = b0 & (0xFFu >> (n + 1));
  for (size_t k = 1; k < n; ++k) {
    if ((byte(i + k) & 0xC0u) != 0x80u) return 1;
    c = (c << 6) | (byte(i + k) & 0x3Fu);
  }
  if ((n == 3 && c < 0x800) || (n == 4 && (c < 0x10000 || c > 0x10FFFF))) return 1;
  code = c;
  return n;
}

void AppendHex(std::string& out, std::string_view before, uint32_t value, int digits,
               std::string_view after, const char* alphabet) {
  out += before;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4)
    out += alphabet[(value >> shift) & 0xFu];
  out += after;
}

// A code point below U+10000; surrogates as WTF-8.
void AppendUtf8(std::string& out, uint32_t code) {
  const auto put = [&](uint32_t byte) {
    out += static_cast<char>(static_cast<unsigned char>(byte));
  };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | (code >> 6));
  } else {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
  }
  put(0x80 | (code & 0x3F));
}

constexpr const char* kUpper = "0123456789ABCDEF";
constexpr const char* kLower = "0123456789abcdef";

// Appends the xlsx form of the character at `i`; returns the number of bytes taken and adds its
// UTF-16 units to `units`.
size_t AppendXlsxCharacter(std::string_view text, size_t i, std::string& out, size_t& units) {
  uint32_t code = 0;
  const size_t n = Decode(text, i, code);
  const size_t before = out.size();
  if (code == kInvalid) {
    AppendHex(out, "\\x", static_cast<unsigned char>(text[i]), 2, "", kLower);
  } else if (code >= 0xD800 && code <= 0xDFFF) {
    AppendHex(out, "\\u", code, 4, "", kLower);
  } else if ((code < 0x20 && code != '\t' && code != '\n') || code == 0xFFFE || code == 0xFFFF) {
    AppendHex(out, "_x", code, 4, "_", kUpper);
  } else if (code == '_' && LooksEscaped(text, i)) {
    out += "_x005F_";
  } else {
    out.append(text, i, n);
    units += n == 4 ? 2 : 1;
    return n;
  }
  units += out.size() - before;
  return n;
}

}  // namespace

bool LooksExecutable(std::string_view text) {
  bool suspicious = StartsFormula(WithoutLeadingBlanks(text));
  for (size_t i = text.find(';'); !suspicious && i != std::string_view::npos;
       i = text.find(';', i + 1)) {
    suspicious = StartsFormula(text.substr(i + 1));
  }
  return suspicious && !AllPiecesAreNumbers(WithoutLeadingBlanks(text));
}

std::string UnescapeXlsxText(std::string text) {
  size_t at = text.find("_x");
  if (at == std::string::npos) return text;
  std::string out;
  size_t done = 0;
  for (; at != std::string::npos; at = text.find("_x", std::max(at + 1, done))) {
    if (!LooksEscaped(text, at)) continue;
    out.append(text, done, at - done);
    AppendUtf8(out, static_cast<uint32_t>(std::stoul(text.substr(at + 2, 4), nullptr, 16)));
    done = at + 7;
  }
  return out.append(text, done);
}

size_t CountCharacters(std::string_view text) {
  size_t count = 0;
  uint32_t code;
  for (size_t i = 0; i < text.size(); i += Decode(text, i, code)) ++count;
  return count;
}

void XlsxText(std::string_view text, std::string& out) {
  out.clear();
  size_t units = 0;
  size_t i = 0;
  // Where the text may be cut so that "…(+N)" still fits; N has at most 20 digits.
  constexpr size_t kCutUnits = kMaxCellUnits - 24;
  size_t cut_out = 0, cut_in = 0;
  while (i < text.size() && units <= kMaxCellUnits) {
    if (units <= kCutUnits) {
      cut_out = out.size();
      cut_in = i;
    }
    i += AppendXlsxCharacter(text, i, out, units);
  }
  if (units <= kMaxCellUnits) return;
  out.resize(cut_out);
  out += kEllipsis;
  out += fmt::format("(+{})", CountCharacters(text.substr(cut_in)));
}

}  // namespace msprobe::report
