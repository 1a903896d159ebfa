#include "cli/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>

#include "base/file.h"
#include "cli/names.h"

namespace msprobe::cli {
namespace {

constexpr const char* kTerminal = "Terminal";

Error FromLibrary(const CLI::ParseError& e) {
  std::string text = e.what();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return Error(ErrorCode::kInvalidArgument, std::move(text)).Hint("see --help");
}

// "512M" as bytes; nullopt for what is no size.
std::optional<uint64_t> ReadSize(std::string_view text) {
  constexpr std::string_view kUnits = "KMGT";
  constexpr uint64_t kLeast = 1 << 20, kMost = uint64_t{1} << 40;
  unsigned shift = 0;
  if (const size_t unit = text.empty() ? std::string_view::npos : kUnits.find(text.back());
      unit != std::string_view::npos) {
    shift = 10 * (static_cast<unsigned>(unit) + 1);
    text.remove_suffix(1);
  }
  uint64_t value = 0;
  const auto r = std::from_chars(text.data(), text.data() + text.size(), value);
  if (r.ec != std::errc() || r.ptr != text.data() + text.size()) return std::nullopt;
  if (value > kMost >> shift || value << shift < kLeast) return std::nullopt;
  return value << shift;
}

}  // namespace

uint64_t ReadMemoryLimit(std::string_view text, std::vector<Error>& problems) {
  if (text.empty()) return 0;
  const std::optional<uint64_t> limit = ReadSize(text);
  if (!limit) {
    problems.push_back(Error(ErrorCode::kInvalidArgument, fmt::format("has no value '{}'", text))
                           .At("--memory-limit")
                           .Hint("bytes from 1M to 1T: 67108864, 64M or 2G"));
  }
  return limit.value_or(0);
}

std::string HelpFormatter::make_option_name(const CLI::Option* option, bool positional) const {
  std::string name = option->get_name(positional, true);
  const size_t k = name.find("--");
  if (k == std::string::npos) return name;
  const std::string_view alias = SingleDash(std::string_view(name).substr(k));
  return alias.empty() ? name : name.insert(k, std::string(alias) + ",");
}

void SetUp(CLI::App& app) {
  app.name("msprobe");
  app.formatter(std::make_shared<HelpFormatter>());
  app.get_formatter()->column_width(38);
  app.set_help_flag();
}

void AddTerminalFlags(CLI::App& app, TerminalFlags& out) {
  app.add_flag("-q,--quiet", out.quiet, "only warnings, errors and the closing line")
      ->group(kTerminal);
  app.add_flag("-v,--verbose", out.verbose, "also say what is being done")->group(kTerminal);
  app.add_flag("--debug", out.debug, "also say details that help to report a fault of this tool")
      ->group(kTerminal);
  app.add_flag("-h,--help", out.help, "this text")->group(kTerminal);
}

std::vector<std::string> KnownOptions(const CLI::App& app) {
  std::vector<std::string> out;
  for (const CLI::Option* o : app.get_options()) {
    for (const std::string& name : o->get_lnames()) out.push_back("--" + name);
    for (const std::string& name : o->get_snames()) out.push_back("-" + name);
  }
  return out;
}

std::vector<Error> CheckArguments(const CLI::App& app, std::span<const std::string> arguments,
                                  const std::vector<std::string>& other_face,
                                  std::string_view other_usage) {
  std::vector<Error> out = CheckOptions(arguments, KnownOptions(app), other_face, other_usage);
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].size() < 2 || arguments[i][0] != '-') continue;
    const CLI::Option* option = app.get_option_no_throw(std::string(LongForm(arguments[i])));
    if (option == nullptr) continue;
    if (option->get_items_expected_max() > 0 && i + 1 < arguments.size() &&
        arguments[i + 1].empty()) {
      out.push_back(Error(ErrorCode::kInvalidArgument, "its value is empty")
                        .At(arguments[i])
                        .Hint("see --help"));
      continue;
    }
    if (option->get_items_expected_min() == 0) continue;
    // "-" alone is standard output, which only rows can go to.
    const bool rows_shown =
        i + 1 < arguments.size() && arguments[i + 1] == "-" && arguments[i] == "--json";
    if (i + 1 == arguments.size() || (arguments[i + 1].starts_with('-') && !rows_shown)) {
      out.push_back(
          Error(ErrorCode::kInvalidArgument, "needs a value").At(arguments[i]).Hint("see --help"));
    }
  }
  return out;
}

std::vector<Error> Parse(CLI::App& app, std::span<const std::string> arguments) {
  // The library takes its arguments in reverse.
  std::vector<std::string> args;
  for (auto it = arguments.rbegin(); it != arguments.rend(); ++it) args.emplace_back(LongForm(*it));
  try {
    app.parse(args);
  } catch (const CLI::ParseError& e) {
    return {FromLibrary(e)};
  }
  return {};
}

std::vector<OptionShape> Shapes(const CLI::App& app) {
  std::vector<OptionShape> out;
  for (const CLI::Option* o : app.get_options()) {
    if (o->get_group().empty()) continue;
    OptionShape shape;
    for (const std::string& name : o->get_snames()) shape.names.push_back("-" + name);
    for (const std::string& name : o->get_lnames()) {
      const std::string_view alias = SingleDash("--" + name);
      if (!alias.empty()) shape.names.emplace_back(alias);
      shape.names.push_back("--" + name);
    }
    shape.takes_value = o->get_items_expected_max() > 0;
    shape.value = shape.takes_value ? o->get_type_name() : "";
    shape.description = o->get_description();
    out.push_back(std::move(shape));
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> Echo(const CLI::App& app) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const CLI::Option* o : app.get_options()) {
    if (o->count() == 0 || o->get_lnames().empty()) continue;
    std::string value;
    for (const std::string& r : o->results()) value += (value.empty() ? "" : ",") + r;
    out.emplace_back(o->get_lnames().front(), std::move(value));
  }
  return out;
}

Error MissingOption(std::string_view option, std::string_view what) {
  return Error(ErrorCode::kInvalidArgument, "is required")
      .At(std::string(option))
      .Hint(std::string(what));
}

void CheckInputFolder(const std::string& path, std::string_view give, std::string_view is,
                      std::vector<Error>& problems) {
  if (path.empty()) {
    problems.push_back(MissingOption("-i", give));
  } else if (!IsDirectory(path)) {
    const bool there = PathExists(path);
    problems.push_back(Error(there ? ErrorCode::kNotRegularFile : ErrorCode::kNotFound,
                             there ? "is not a folder" : "does not exist")
                           .At(path)
                           .Hint(std::string(is)));
  }
}

std::string OptionHelp(CLI::App& app, std::string_view first_group) {
  std::string text = app.help();
  const size_t begin = text.find(std::string(first_group) + ":");
  if (begin != std::string::npos) text.erase(0, begin);
  for (size_t k; (k = text.find("\n\n\n")) != std::string::npos;) text.erase(k, 1);
  return text;
}

}  // namespace msprobe::cli
