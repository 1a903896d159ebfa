#include "cli/fail_on.h"

#include <array>
#include <span>

#include "cli/names.h"

namespace msprobe::cli {

std::optional<Error> ReadFailOn(const std::string& value, std::string_view rest_word, FailOn& out,
                                Searches searches) {
  const bool culprit = searches == Searches::kCulprit;
  const std::array<std::string_view, 4> all = {"error", "warning", rest_word, "culprit"};
  const auto words = std::span(all).first(culprit ? 4 : 3);
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
    } else if (culprit && word == "culprit") {
      out.culprit = true;
    } else {
      return WrongValue("--fail-on", word, words);
    }
  }
  return std::nullopt;
}

}  // namespace msprobe::cli
