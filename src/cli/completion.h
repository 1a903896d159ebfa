// Completion scripts for shells, made from the same tables of options that the commands parse with.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/terminal.h"

namespace msprobe::cli {

// An option or a positional argument.
struct OptionShape {
  std::vector<std::string>
      names;  // with their dashes, the single-dash one of upstream too; none: positional
  bool takes_value = false;
  std::string value;  // as the help shows it: "FILE", "DIR", "old|new"
  std::string description;
};

struct CommandShape {
  std::string name, summary;
  std::vector<OptionShape> options;      // of `msprobe NAME`
  std::vector<OptionShape> old_options;  // of `msprobe -f pytorch NAME`
};

// What can stand for a value: words, and whether a file or a folder can.
struct ValueKind {
  std::vector<std::string> words;
  bool file = false, folder = false;
};
// "old|new": two words; "none|cpu|FILE": two words or a file; "DIR": a folder; "N": nothing.
ValueKind KindOf(std::string_view value);

constexpr std::string_view kShells[] = {"bash", "zsh", "fish"};
std::string BashScript(std::span<const CommandShape> commands);
std::string ZshScript(std::span<const CommandShape> commands);
std::string FishScript(std::span<const CommandShape> commands);

// `msprobe completion SHELL`: the script on standard output.
int RunCompletion(std::span<const std::string> arguments, std::span<const CommandShape> commands,
                  Terminal& terminal);
std::vector<OptionShape> CompletionShape();

}  // namespace msprobe::cli
