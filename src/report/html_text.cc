#include "report/html_text.h"

#include <cstddef>
#include <span>

#include "base/base64.h"
#include "base/text.h"

namespace msprobe::report {

void AppendMarkup(std::string& out, std::string_view text) {
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
}

std::string HtmlText(std::string_view text) {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  for (;;) {
    const size_t end = text.find('\n');
    AppendMarkup(out, VisibleText(text.substr(0, end)));
    if (end == std::string_view::npos) return out;
    out += '\n';
    text.remove_prefix(end + 1);
  }
}

std::string ScriptSafe(std::string_view json) {
  std::string out;
  out.reserve(json.size() + 64);
  for (const char c : json) {
    switch (c) {
      case '<':
        out += "\\u003c";
        break;
      case '>':
        out += "\\u003e";
        break;
      case '&':
        out += "\\u0026";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string Base64(std::string_view bytes) {
  std::string out;
  AppendBase64(out, std::as_bytes(std::span(bytes)));
  return out;
}

}  // namespace msprobe::report
