// The option --fail-on of every command that gives verdicts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace msprobe::cli {

// Verdicts that end a command with kFailOn. `rest` is what was not judged: rows without a partner,
// skipped calls.
struct FailOn {
  bool error = false, warning = false, rest = false;
  bool culprit = false;  // compare only: an operator is at fault, or it could not be told
  bool Reached(uint64_t errors, uint64_t warnings, uint64_t not_judged) const {
    return (error && errors > 0) || (warning && warnings > 0) || (rest && not_judged > 0);
  }
};

// Words separated by commas: error, warning (which takes errors in), and the command's word for
// what was not judged; `culprit` where the command searches it. nullopt when all is well.
enum class Searches : uint8_t { kNothing, kCulprit };
std::optional<Error> ReadFailOn(const std::string& value, std::string_view rest_word, FailOn& out,
                                Searches searches = Searches::kNothing);

}  // namespace msprobe::cli
