// What a text must become before it is put into a csv or xlsx cell.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace msprobe::report {

// The text of an xlsx string cell: control characters and code points that XML has not as _xHHHH_,
// a literal text of that form with its first underscore escaped, invalid bytes as \xHH, lone
// surrogates as \udXXX, and at most 32,767 UTF-16 units, the end of longer texts replaced by
// "…(+N)" where N counts the code points left out (decisions.md 4). The result replaces `out`.
void XlsxText(std::string_view text, std::string& out);

// The inverse for _xHHHH_: what a cell shows.
std::string UnescapeXlsxText(std::string text);

// Code points; invalid bytes count one each.
size_t CountCharacters(std::string_view text);

}  // namespace msprobe::report
