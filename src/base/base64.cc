#include "base/base64.h"

#include <array>
#include <cstdint>

namespace msprobe {
namespace {

constexpr std::string_view kLetters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr uint8_t kNoLetter = 64;

constexpr std::array<uint8_t, 256> ValuesOfLetters() {
  std::array<uint8_t, 256> values{};
  values.fill(kNoLetter);
  for (size_t i = 0; i < kLetters.size(); ++i) {
    values[static_cast<unsigned char>(kLetters[i])] = static_cast<uint8_t>(i);
  }
  return values;
}
constexpr std::array<uint8_t, 256> kValues = ValuesOfLetters();

uint32_t Group(const std::byte* p, size_t n) {
  uint32_t group = 0;
  for (size_t k = 0; k < 3; ++k) group = group << 8 | (k < n ? std::to_integer<uint32_t>(p[k]) : 0);
  return group;
}

}  // namespace

void AppendBase64(std::string& out, std::span<const std::byte> bytes) {
  size_t at = out.size();
  out.resize(at + (bytes.size() + 2) / 3 * 4);
  char* const text = out.data();
  size_t i = 0;
  for (; i + 3 <= bytes.size(); i += 3) {
    const uint32_t group = Group(bytes.data() + i, 3);
    text[at++] = kLetters[group >> 18];
    text[at++] = kLetters[group >> 12 & 63];
    text[at++] = kLetters[group >> 6 & 63];
    text[at++] = kLetters[group & 63];
  }
  if (i == bytes.size()) return;
  const size_t rest = bytes.size() - i;
  const uint32_t group = Group(bytes.data() + i, rest);
  text[at++] = kLetters[group >> 18];
  text[at++] = kLetters[group >> 12 & 63];
  text[at++] = rest == 2 ? kLetters[group >> 6 & 63] : '=';
  text[at] = '=';
}

std::optional<std::vector<std::byte>> DecodeBase64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  std::vector<std::byte> bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (size_t i = 0; i < text.size(); i += 4) {
    const size_t letters = i + 4 == text.size() ? 4 - padding : 4;
    uint32_t group = 0;
    for (size_t k = 0; k < 4; ++k) {
      const uint8_t value = k < letters ? kValues[static_cast<unsigned char>(text[i + k])] : 0;
      if (value == kNoLetter) return std::nullopt;
      group = group << 6 | value;
    }
    for (size_t k = 0; k + 1 < letters; ++k) {
      bytes.push_back(static_cast<std::byte>(group >> (16 - 8 * k) & 0xFF));
      group &= ~(uint32_t{0xFF} << (16 - 8 * k));
    }
    if (group != 0) return std::nullopt;
  }
  return bytes;
}

}  // namespace msprobe
