// Stands in for the embedded styles and scripts in a build without MSPROBE_HTML.
#include "report/html_assets.h"

namespace msprobe::report {

const std::string_view kHtmlPolicy;
const std::string_view kHtmlStyle;
const std::string_view kHtmlScripts;
const std::string_view kHtmlNotices;

}  // namespace msprobe::report
