// What the commands' argument parsers share. Only sources include this: it brings in the
// command-line library.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cli/completion.h"
#include "cli/terminal.h"

namespace msprobe::cli {

// Shows upstream's single-dash name before the long one.
class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool positional) const override;
};

// An empty parser with our help format and without the library's own help option.
void SetUp(CLI::App& app);
// -q, -v, --debug and -h in the group "Terminal".
void AddTerminalFlags(CLI::App& app, TerminalFlags& out);

// Long names and single letters, with their dashes.
std::vector<std::string> KnownOptions(const CLI::App& app);

// Problems of arguments that the library would misread: unknown options, forgotten values (it would
// take the next option as the value).
std::vector<Error> CheckArguments(const CLI::App& app, std::span<const std::string> arguments,
                                  const std::vector<std::string>& other_face = {},
                                  std::string_view other_usage = {});
// Parses arguments that passed CheckArguments.
std::vector<Error> Parse(CLI::App& app, std::span<const std::string> arguments);

// What there is to complete: all options but hidden ones, positional arguments in their order.
std::vector<OptionShape> Shapes(const CLI::App& app);

// What was given: long names without dashes, values joined by commas.
std::vector<std::pair<std::string, std::string>> Echo(const CLI::App& app);

Error MissingOption(std::string_view option, std::string_view what);
// -i of a command that reads a folder: missing (`give` says what to give), or no folder (`is` says
// what it is meant to be).
void CheckInputFolder(const std::string& path, std::string_view give, std::string_view is,
                      std::vector<Error>& problems);
// The value of --memory-limit in bytes: "512M", 1 MiB … 1 TiB; 0 when it was not given.
uint64_t ReadMemoryLimit(std::string_view text, std::vector<Error>& problems);
// The library's help without its own head and with single empty lines; `first_group` is where it
// begins.
std::string OptionHelp(CLI::App& app, std::string_view first_group);

}  // namespace msprobe::cli
