#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

namespace msprobe {
namespace {

// One code point of `text` at `i`. Returns its length, or 0 when the bytes there are not valid
// UTF-8 (overlong, surrogate, out of range or cut off).
size_t DecodeUtf8(std::string_view text, size_t i, uint32_t& code) {
  const auto byte = [&](size_t k) { return static_cast<unsigned char>(text[k]); };
  const uint32_t b0 = byte(i);
  size_t n;
  if (b0 < 0x80) {
    code = b0;
    return 1;
  }
  if (b0 >= 0xC2 && b0 <= 0xDF) {
    n = 2;
    code = b0 & 0x1Fu;
  } else if (b0 >= 0xE0 && b0 <= 0xEF) {
    n = 3;
    code = b0 & 0x0Fu;
  } else if (b0 >= 0xF0 && b0 <= 0xF4) {
    n = 4;
    code = b0 & 0x07u;
  } else {
    return 0;
  }
  if (i + n > text.size()) return 0;
  for (size_t k = 1; k < n; ++k) {
    if ((byte(i + k) & 0xC0u) != 0x80u) return 0;
    code = (code << 6) | (byte(i + k) & 0x3Fu);
  }
  if (n == 3 && (code < 0x800 || (code >= 0xD800 && code <= 0xDFFF))) return 0;
  if (n == 4 && (code < 0x10000 || code > 0x10FFFF)) return 0;
  return n;
}

// Format characters that re-order or hide text on a terminal.
bool IsInvisible(uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code <= 0x9F) || (code >= 0x200B && code <= 0x200F) ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069) ||
         code == 0xFEFF || code == 0x061C;
}

}  // namespace

void AppendPyFloatRepr(std::string& out, double value) {
  if (std::isnan(value)) {
    out += "nan";
    return;
  }
  if (std::isinf(value)) {
    out += value > 0 ? "inf" : "-inf";
    return;
  }
  char buffer[40];
  // Python switches to exponents below 1e-4 and from 1e16 on.
  const double magnitude = std::fabs(value);
  const bool exponent = magnitude != 0 && (magnitude < 1e-4 || magnitude >= 1e16);
  const auto r = std::to_chars(buffer, buffer + sizeof(buffer), value,
                               exponent ? std::chars_format::scientific : std::chars_format::fixed);
  const size_t start = out.size();
  out.append(buffer, r.ptr);
  if (!exponent && out.find('.', start) == std::string::npos) out += ".0";
}

std::string PyFloatRepr(double value) {
  std::string out;
  AppendPyFloatRepr(out, value);
  return out;
}

std::string PyStringRepr(std::string_view value) {
  const bool use_double =
      value.find('\'') != std::string_view::npos && value.find('"') == std::string_view::npos;
  const char quote = use_double ? '"' : '\'';
  std::string out(1, quote);
  for (size_t i = 0; i < value.size();) {
    uint32_t code = 0;
    const size_t n = DecodeUtf8(value, i, code);
    const char c = value[i];
    if (n == 0) {
      out += fmt::format("\\udc{:02x}", static_cast<unsigned char>(c));
      ++i;
      continue;
    }
    if (c == quote || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (code < 0x20 || (code >= 0x7F && code < 0xA1) || code == 0xAD) {
      out += fmt::format("\\x{:02x}", code);
    } else if (IsInvisible(code)) {
      out += fmt::format("\\u{:04x}", code);
    } else {
      out.append(value.substr(i, n));
    }
    i += n;
  }
  out += quote;
  return out;
}

bool IsValidUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    // Plain ASCII eight bytes at a time.
    constexpr uint64_t kHighBits = 0x8080808080808080u;
    for (uint64_t bytes; i + sizeof bytes <= text.size(); i += sizeof bytes) {
      std::memcpy(&bytes, text.data() + i, sizeof bytes);
      if ((bytes & kHighBits) != 0) break;
    }
    if (i == text.size()) break;
    uint32_t code = 0;
    const size_t n = DecodeUtf8(text, i, code);
    if (n == 0) return false;
    i += n;
  }
  return true;
}

std::string VisibleText(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    uint32_t code = 0;
    const size_t n = DecodeUtf8(text, i, code);
    if (n == 0) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[i]));
      ++i;
      continue;
    }
    if (IsInvisible(code)) {
      out += code < 0x100 ? fmt::format("\\x{:02x}", code) : fmt::format("\\u{:04x}", code);
    } else {
      out.append(text.substr(i, n));
    }
    i += n;
  }
  return out;
}

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t up = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = up;
    }
  }
  return row[b.size()];
}

std::string_view Nearest(std::string_view name, std::span<const std::string_view> candidates) {
  const size_t limit = std::max<size_t>(2, name.size() / 3);
  std::string_view best;
  size_t best_distance = limit + 1;
  for (const std::string_view candidate : candidates) {
    const size_t longer = std::max(candidate.size(), name.size());
    const size_t shorter = std::min(candidate.size(), name.size());
    if (longer - shorter >= best_distance) continue;
    const size_t d = EditDistance(name, candidate);
    if (d < best_distance) {
      best_distance = d;
      best = candidate;
    }
  }
  return best;
}

bool ParsePyFloat(std::string_view text, double& out) {
  std::string_view body = text;
  bool negative = false;
  if (!body.empty() && (body.front() == '+' || body.front() == '-')) {
    negative = body.front() == '-';
    body.remove_prefix(1);
  }
  if (body.empty()) return false;
  std::string lower(body);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) {
    return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  });
  if (lower == "inf" || lower == "infinity") {
    out = negative ? -std::numeric_limits<double>::infinity()
                   : std::numeric_limits<double>::infinity();
    return true;
  }
  if (lower == "nan") {
    out = std::numeric_limits<double>::quiet_NaN();
    return true;
  }
  if (!(lower.front() == '.' || (lower.front() >= '0' && lower.front() <= '9'))) return false;
  double value = 0;
  const auto r = std::from_chars(lower.data(), lower.data() + lower.size(), value);
  if (r.ec == std::errc::result_out_of_range && r.ptr == lower.data() + lower.size()) {
    value = std::strtod(lower.c_str(), nullptr);
  } else if (r.ec != std::errc() || r.ptr != lower.data() + lower.size()) {
    return false;
  }
  out = negative ? -value : value;
  return true;
}

}  // namespace msprobe
