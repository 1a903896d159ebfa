#include "cli/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"

namespace msprobe::cli {
namespace {

constexpr std::array kAliases = {
    Alias{"-tp", "--target_path"},         Alias{"-gp", "--golden_path"},
    Alias{"-fm", "--fuzzy_match"},         Alias{"-dm", "--data_mapping"},
    Alias{"-cm", "--cell_mapping"},        Alias{"-am", "--api_mapping"},
    Alias{"-lm", "--layer_mapping"},       Alias{"-da", "--diff_analyze"},
    Alias{"-hl", "--highlight"},           Alias{"-tensor_log", "--is_print_compare_log"},
    Alias{"-api_info", "--api_info_file"}, Alias{"-csv_path", "--result_csv_path"},
    Alias{"-config", "--config_path"},     Alias{"-save_error_data", "--save_error_data"},
    Alias{"-npu", "--npu_csv_path"},       Alias{"-gpu", "--gpu_csv_path"},
};

constexpr std::array<std::string_view, 3> kPlannedCommands = {"graph_visualize", "parse",
                                                              "config_check"};

template <class List>
bool Contains(const List& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

std::string_view NameOf(std::string_view argument) {
  return argument.substr(0, argument.find('='));
}

bool LooksLikeOption(std::string_view argument) {
  return argument.size() > 1 && argument[0] == '-';
}

}  // namespace

std::span<const Alias> Aliases() { return kAliases; }

std::string_view LongForm(std::string_view argument) {
  for (const Alias& a : kAliases) {
    if (a.single_dash == argument) return a.long_form;
  }
  return argument;
}

std::string_view SingleDash(std::string_view long_form) {
  for (const Alias& a : kAliases) {
    if (a.long_form == long_form) return a.single_dash;
  }
  return {};
}

bool IsPlannedCommand(std::string_view name) { return Contains(kPlannedCommands, name); }

Error PlannedError(std::string_view what) {
  return Error(ErrorCode::kUnsupported, "this build does not have it yet")
      .At(std::string(what))
      .Hint("see `msprobe --help` for what it has");
}

Error UnknownError(std::string_view kind, std::string_view given,
                   const std::vector<std::string>& known) {
  std::vector<std::string_view> candidates(known.begin(), known.end());
  const std::string_view near = Nearest(given, candidates);
  Error out =
      Error(ErrorCode::kInvalidArgument, fmt::format("unknown {}", kind)).At(std::string(given));
  if (!near.empty()) return std::move(out).Hint(fmt::format("did you mean {}?", near));
  return std::move(out).Hint("see `msprobe --help`");
}

Error WrongValue(std::string_view option, std::string_view value,
                 std::span<const std::string_view> allowed) {
  const std::string_view near = Nearest(value, allowed);
  std::string hint = near.empty() ? "" : fmt::format("did you mean {}? ", near);
  hint += "allowed:";
  for (const std::string_view a : allowed) hint += fmt::format(" {}", a);
  return Error(ErrorCode::kInvalidArgument, fmt::format("has no value '{}'", value))
      .At(std::string(option))
      .Hint(hint);
}

std::vector<Error> CheckOptions(std::span<const std::string> arguments,
                                const std::vector<std::string>& known,
                                const std::vector<std::string>& other_face,
                                std::string_view other_usage) {
  std::vector<std::string> suggestions = known;
  for (const std::string& k : known) {
    if (const std::string_view alias = SingleDash(k); !alias.empty())
      suggestions.emplace_back(alias);
  }
  std::vector<Error> out;
  for (const std::string& argument : arguments) {
    if (!LooksLikeOption(argument) || argument == "--") continue;
    const std::string_view name = NameOf(argument);
    if (Contains(known, LongForm(name))) continue;
    if (Contains(other_face, LongForm(name))) {
      out.push_back(
          Error(ErrorCode::kInvalidArgument, "belongs to the other spelling of this command")
              .At(std::string(name))
              .Hint(fmt::format("write: {}", other_usage)));
    } else {
      out.push_back(UnknownError("option", name, suggestions));
    }
  }
  return out;
}

}  // namespace msprobe::cli
