#include "config/yaml_quotes.h"

namespace msprobe::config {

bool IsClosed(std::string_view text, size_t begin) {
  if (begin >= text.size()) return true;
  const char quote = text[begin];
  if (quote != '"' && quote != '\'') return true;
  for (size_t i = begin + 1; i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\') {
      ++i;
    } else if (text[i] == quote) {
      if (quote == '"' || i + 1 >= text.size() || text[i + 1] != quote) return true;
      ++i;  // '' is a quote inside
    }
  }
  return false;
}

}  // namespace msprobe::config
