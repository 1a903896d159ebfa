// str() and repr() of Python for parsed values.
#include "base/text.h"
#include "json/json.h"

namespace msprobe::json {
namespace {

constexpr std::string_view kHex = "0123456789abcdef";

// PyStringRepr shows each byte of a lone surrogate (WTF-8, ED A0..BF 80..BF) as an undecodable
// byte, \udcXX; Python shows the surrogate itself.
std::string StringRepr(std::string_view text) {
  std::string shown = PyStringRepr(text);
  constexpr std::string_view kFirst = "\\udced\\udc";
  size_t at = 0;
  while ((at = shown.find(kFirst, at)) != std::string::npos) {
    size_t slashes = 0;  // an escaped backslash in front makes it plain text
    while (slashes < at && shown[at - 1 - slashes] == '\\') ++slashes;
    const auto digit = [&](size_t k) {
      return at + k < shown.size() ? kHex.find(shown[at + k]) : std::string_view::npos;
    };
    const size_t a = digit(10), b = digit(11), c = digit(16), d = digit(17);
    const bool surrogate = slashes % 2 == 0 && a >= 0xA && a <= 0xB && b < 16 &&
                           shown.compare(at + 12, 4, "\\udc") == 0 && c >= 8 && c <= 0xB && d < 16;
    if (!surrogate) {
      ++at;
      continue;
    }
    const size_t unit = 0xD000u | ((a * 16 + b) & 0x3F) << 6 | ((c * 16 + d) & 0x3F);
    const char digits[6] = {
        '\\', 'u', 'd', kHex[(unit >> 8) & 15], kHex[(unit >> 4) & 15], kHex[unit & 15]};
    shown.replace(at, 18, digits, 6);
    at += 6;
  }
  return shown;
}

void AppendScalar(std::string& out, const Value& value) {
  switch (value.type()) {
    case Value::Type::kNull:
      out += "None";
      break;
    case Value::Type::kBool:
      out += value.as_bool() ? "True" : "False";
      break;
    case Value::Type::kInt:
      AppendInt(out, value.as_int());
      break;
    case Value::Type::kBigInt:
      out += value.as_string();
      break;
    case Value::Type::kDouble:
      AppendPyFloatRepr(out, value.as_double());
      break;
    case Value::Type::kString:
      out += StringRepr(value.as_string());
      break;
    default:
      break;
  }
}

}  // namespace

std::string PyRepr(const Value& value) {
  struct Level {
    const Value* container;
    size_t next;
  };
  std::string out;
  std::vector<Level> stack;
  const auto enter = [&](const Value& v) {
    if (!v.is_array() && !v.is_object()) return AppendScalar(out, v);
    out += v.is_array() ? '[' : '{';
    stack.push_back({&v, 0});
  };
  enter(value);
  while (!stack.empty()) {
    const Value& container = *stack.back().container;
    const size_t i = stack.back().next++;
    if (i == container.size()) {
      out += container.is_array() ? ']' : '}';
      stack.pop_back();
      continue;
    }
    if (i > 0) out += ", ";
    if (container.is_array()) {
      enter(container[i]);
    } else {
      const Value::Member& member = container.members_begin()[i];
      out += StringRepr(member.key);
      out += ": ";
      enter(member.value);
    }
  }
  return out;
}

std::string PyStr(const Value& value) {
  return value.is_string() ? std::string(value.as_string()) : PyRepr(value);
}

}  // namespace msprobe::json
