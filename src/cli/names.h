// Names of commands and options: upstream's single-dash spellings, and what to suggest for a wrong
// one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace msprobe::cli {

// Upstream's single-dash names of several letters and their long forms ("-tp" -> "--target_path").
// The command-line library knows long names only, so arguments that are exactly one of these are
// replaced before parsing.
struct Alias {
  std::string_view single_dash;
  std::string_view long_form;
};
std::span<const Alias> Aliases();
// The long form of an argument that is exactly a single-dash name; the argument itself otherwise.
std::string_view LongForm(std::string_view argument);
// "-tp" for "--target_path"; empty when there is none.
std::string_view SingleDash(std::string_view long_form);

// A command that upstream has and this build has not yet: refused with that sentence
// instead of "unknown".
bool IsPlannedCommand(std::string_view name);

Error PlannedError(std::string_view what);

// "unknown command 'comapre'" with the hint "did you mean 'compare'?" when one of `known` is near.
Error UnknownError(std::string_view kind, std::string_view given,
                   const std::vector<std::string>& known);

// "--rules: has no value 'bse'; did you mean base? allowed: base default".
Error WrongValue(std::string_view option, std::string_view value,
                 std::span<const std::string_view> allowed);

// Checks every argument that begins with '-': it must be one of `known` (long forms and single
// letters, "--name=value" allowed). Values that begin with '-' are refused as upstream refuses
// them. `other_face`: options of the other spelling of the command, for a better hint.
std::vector<Error> CheckOptions(std::span<const std::string> arguments,
                                const std::vector<std::string>& known,
                                const std::vector<std::string>& other_face,
                                std::string_view other_usage);

}  // namespace msprobe::cli
