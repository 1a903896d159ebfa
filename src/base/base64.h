// Base64 (RFC 4648, section 4): with padding, without line breaks.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace msprobe {

void AppendBase64(std::string& out, std::span<const std::byte> bytes);

// The bytes behind `text`; nullopt for anything that AppendBase64 does not write: other characters,
// missing or misplaced padding, bits set in what the last character has left over.
std::optional<std::vector<std::byte>> DecodeBase64(std::string_view text);

}  // namespace msprobe
