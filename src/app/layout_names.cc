#include "app/layout_names.h"

#include <string_view>

namespace msprobe::app {

std::string RowName(const std::string& path) {
  const size_t at = path.find('\n');
  std::string place = path.substr(at + 1);
  for (const std::string_view key : {"input_args", "input_kwargs", "args", "kwargs"}) {
    if (place.starts_with(key)) place.replace(0, key.size(), "input");
  }
  return path.substr(0, at) + "." + place;
}

std::string KindOf(const std::string& name) {
  std::string out;
  for (size_t i = 0; i < name.size();) {
    size_t end = name.find('.', i);
    if (end == std::string::npos) end = name.size();
    const std::string_view part(name.data() + i, end - i);
    const bool number =
        !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    // The number of an argument stays: it is the last one, behind `input` or `output`.
    const bool last = end == name.size();
    if (!out.empty()) out += '.';
    out += number && !last ? "*" : std::string(part);
    i = end + 1;
  }
  return out;
}

}  // namespace msprobe::app
