// JSON out, character for character as Python's json module writes it.
#include <charconv>
#include <cmath>

#include "base/text.h"
#include "json/json.h"

namespace msprobe::json {
namespace {

constexpr uint8_t kObjectBit = 1;
constexpr uint8_t kFilledBit = 2;

void AppendUnit(std::string& out, uint32_t unit) {
  constexpr char kHex[] = "0123456789abcdef";
  const char text[6] = {
      '\\',           'u', kHex[(unit >> 12) & 15], kHex[(unit >> 8) & 15], kHex[(unit >> 4) & 15],
      kHex[unit & 15]};
  out.append(text, sizeof(text));
}

bool IsPlain(unsigned char c) { return c >= 0x20 && c < 0x7F && c != '"' && c != '\\'; }

// Code point at text[i] and its length, surrogates included (WTF-8); length 0 for bytes that are no
// UTF-8.
size_t Decode(std::string_view text, size_t i, uint32_t& code) {
  const auto byte = [&](size_t k) {
    return static_cast<uint32_t>(static_cast<unsigned char>(text[k]));
  };
  const uint32_t first = byte(i);
  const size_t n = first < 0x80   ? 1
                   : first < 0xC2 ? 0
                   : first < 0xE0 ? 2
                   : first < 0xF0 ? 3
                   : first < 0xF5 ? 4
                                  : 0;
  if (n == 0 || n > text.size() - i) return 0;
  code = n == 1 ? first : first & (0xFFu >> (n + 1));
  for (size_t k = 1; k < n; ++k) {
    if ((byte(i + k) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i + k) & 0x3F);
  }
  if ((n == 3 && code < 0x800) || (n == 4 && (code < 0x10000 || code > 0x10FFFF))) return 0;
  return n;
}

void AppendEscaped(std::string& out, uint32_t code) {
  switch (code) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    case '\f':
      out += "\\f";
      return;
    case '\b':
      out += "\\b";
      return;
    default:
      break;
  }
  if (code < 0x10000) {
    AppendUnit(out, code);
  } else {
    AppendUnit(out, 0xD800 + ((code - 0x10000) >> 10));
    AppendUnit(out, 0xDC00 + ((code - 0x10000) & 0x3FF));
  }
}

}  // namespace

void AppendString(std::string& out, std::string_view text) {
  out += '"';
  size_t i = 0;
  while (i < text.size()) {
    size_t k = i;
    while (k < text.size() && IsPlain(static_cast<unsigned char>(text[k]))) ++k;
    out.append(text, i, k - i);
    i = k;
    if (i == text.size()) break;
    uint32_t code = 0;
    const size_t n = Decode(text, i, code);
    if (n == 0) {
      AppendUnit(out, 0xDC00u + static_cast<unsigned char>(text[i]));
      ++i;
    } else {
      AppendEscaped(out, code);
      i += n;
    }
  }
  out += '"';
}

void AppendDouble(std::string& out, double value) {
  if (std::isnan(value)) {
    out += "NaN";
  } else if (std::isinf(value)) {
    out += value > 0 ? "Infinity" : "-Infinity";
  } else {
    AppendPyFloatRepr(out, value);
  }
}

void AppendInt(std::string& out, int64_t value) {
  char buffer[24];
  out.append(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr);
}

void Writer::NewLine() {
  if (indent_ < 0) return;
  out_ += '\n';
  out_.append(stack_.size() * static_cast<size_t>(indent_), ' ');
}

void Writer::BeforeValue() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (stack_.empty()) return;
  if ((stack_.back() & kFilledBit) != 0) out_ += indent_ < 0 ? ", " : ",";
  stack_.back() |= kFilledBit;
  NewLine();
}

Writer& Writer::StartObject() {
  BeforeValue();
  out_ += '{';
  stack_.push_back(kObjectBit);
  return *this;
}

Writer& Writer::EndObject() {
  const bool filled = (stack_.back() & kFilledBit) != 0;
  stack_.pop_back();
  if (filled) NewLine();
  out_ += '}';
  return *this;
}

Writer& Writer::StartArray() {
  BeforeValue();
  out_ += '[';
  stack_.push_back(0);
  return *this;
}

Writer& Writer::EndArray() {
  const bool filled = (stack_.back() & kFilledBit) != 0;
  stack_.pop_back();
  if (filled) NewLine();
  out_ += ']';
  return *this;
}

Writer& Writer::Key(std::string_view key) {
  BeforeValue();
  AppendString(out_, key);
  out_ += ": ";
  after_key_ = true;
  return *this;
}

Writer& Writer::String(std::string_view value) {
  BeforeValue();
  AppendString(out_, value);
  return *this;
}

Writer& Writer::Int(int64_t value) {
  BeforeValue();
  AppendInt(out_, value);
  return *this;
}

Writer& Writer::Uint(uint64_t value) {
  BeforeValue();
  char buffer[24];
  out_.append(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr);
  return *this;
}

Writer& Writer::Double(double value) {
  BeforeValue();
  AppendDouble(out_, value);
  return *this;
}

Writer& Writer::Bool(bool value) { return Raw(value ? "true" : "false"); }

Writer& Writer::Null() { return Raw("null"); }

Writer& Writer::Raw(std::string_view json) {
  BeforeValue();
  out_ += json;
  return *this;
}

Writer& Writer::Copy(const Value& value) {
  struct Level {
    const Value* container;
    size_t next;
  };
  std::vector<Level> levels;
  const auto put = [&](const Value& v) {
    switch (v.type()) {
      case Value::Type::kNull:
        Null();
        break;
      case Value::Type::kBool:
        Bool(v.as_bool());
        break;
      case Value::Type::kInt:
        Int(v.as_int());
        break;
      case Value::Type::kBigInt:
        Raw(v.as_string());
        break;
      case Value::Type::kDouble:
        Double(v.as_double());
        break;
      case Value::Type::kString:
        String(v.as_string());
        break;
      case Value::Type::kArray:
        StartArray();
        levels.push_back({&v, 0});
        break;
      case Value::Type::kObject:
        StartObject();
        levels.push_back({&v, 0});
        break;
    }
  };
  put(value);
  while (!levels.empty()) {
    const Value& container = *levels.back().container;
    const size_t i = levels.back().next++;
    if (i == container.size()) {
      container.is_array() ? EndArray() : EndObject();
      levels.pop_back();
    } else if (container.is_array()) {
      put(container[i]);
    } else {
      Key(container.members_begin()[i].key);
      put(container.members_begin()[i].value);
    }
  }
  return *this;
}

}  // namespace msprobe::json
