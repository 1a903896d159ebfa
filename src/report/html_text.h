// Text for HTML: never markup, never script, always visible.
#pragma once

#include <string>
#include <string_view>

namespace msprobe::report {

// For content and quoted attributes: & < > " ' as references; control characters, bidirectional
// overrides and bytes that are no UTF-8 as text.h's VisibleText shows them. Line feeds stay.
std::string HtmlText(std::string_view text);
// The references alone, for XML as well: `text` holds no control characters any more.
void AppendMarkup(std::string& out, std::string_view text);
// JSON in a script element: < > & become \u003c and so on, so that no text can end the element.
std::string ScriptSafe(std::string_view json);
// RFC 4648 with padding, without line ends.
std::string Base64(std::string_view bytes);

}  // namespace msprobe::report
