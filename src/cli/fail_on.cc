#include "cli/fail_on.h"

#include <array>

#include "cli/names.h"

namespace msprobe::cli {

std::optional<Error> ReadFailOn(const std::string& value, std::string_view rest_word, FailOn& out) {
  const std::array<std::string_view, 3> words = {"error", "warning", rest_word};
  for (std::string_view rest = value; !rest.empty();) {
    const size_t comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    if (word == rest_word) {
      out.rest = true;
    } else if (word == "error") {
      out.error = true;
    } else if (word == "warning") {
      out.error = out.warning = true;
    } else {
      return WrongValue("--fail-on", word, words);
    }
  }
  return std::nullopt;
}

}  // namespace msprobe::cli
