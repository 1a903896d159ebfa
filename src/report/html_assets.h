// Styles and scripts of the HTML page, made into a source by tools/embed_assets.py when the project
// is built: the project's own, Tabulator and dygraphs, with their notices.
#pragma once

#include <string_view>

namespace msprobe::report {

// Content-Security-Policy of the page: nothing from outside, and no script but the embedded ones.
extern const std::string_view kHtmlPolicy;
extern const std::string_view kHtmlStyle;    // for a style element
extern const std::string_view kHtmlScripts;  // whole script elements
extern const std::string_view kHtmlNotices;  // licences, plain text

}  // namespace msprobe::report
