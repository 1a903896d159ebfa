// Text helpers: what Python prints, what a terminal may show, names that are nearly right.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace msprobe {

// repr(float) of Python: shortest digits that read back, "1.0", "1e-05", "inf", "-inf", "nan".
std::string PyFloatRepr(double value);
void AppendPyFloatRepr(std::string& out, double value);
// repr(str) of Python 3 for valid UTF-8 (quotes chosen as Python does, \n \t \\ \xHH \uHHHH escapes
// of what is not printable in the ASCII range; other characters stay).
std::string PyStringRepr(std::string_view value);

bool IsValidUtf8(std::string_view text);
// Control characters and bidirectional overrides as \xHH / \uHHHH, invalid UTF-8 bytes as \xHH. For
// terminals and logs.
std::string VisibleText(std::string_view text);

// Damerau-free Levenshtein distance in bytes.
size_t EditDistance(std::string_view a, std::string_view b);
// The candidate with the smallest distance, if that is at most max(2, |name| / 3); else empty.
// Ties: first.
std::string_view Nearest(std::string_view name, std::span<const std::string_view> candidates);

// Decimal integer or float as a whole (no blanks around); false when it is anything else. Accepts
// inf/nan spellings of Python's float(): "inf", "-Infinity", "NaN" in any case.
bool ParsePyFloat(std::string_view text, double& out);

}  // namespace msprobe
