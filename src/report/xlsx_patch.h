// A change to a workbook that its writing library cannot make.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace msprobe::report {

// In the zip archive `fd` (just written by us, so taken as well-formed; open for reading and
// writing, `path` for messages), replaces every `from` by `to` in the text of member `name`. Only
// that member and the directory are written again, behind the others, so the cost does not grow
// with the size of the sheets. Archives of zip64 form are left as they are.
Status ReplaceInZipMember(int fd, const std::string& path, std::string_view name,
                          std::string_view from, std::string_view to);

}  // namespace msprobe::report
