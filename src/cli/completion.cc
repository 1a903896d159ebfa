#include "cli/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/names.h"
#include "cli/options.h"
#include "cli/status.h"

namespace msprobe::cli {
namespace {

constexpr std::string_view kHead =
    "# Completion of msprobe for {0}, made by `msprobe completion {0}`.\n";

// For a text between single quotes of a shell.
std::string Quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += R"('\'')";
    } else {
      out += c;
    }
  }
  return out + "'";
}

// fish knows \' inside of single quotes, and no '\''.
std::string FishQuoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

// What _arguments takes for special stands behind a backslash.
std::string ZshText(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::vector<std::string> Names(std::span<const OptionShape> options) {
  std::vector<std::string> out;
  for (const OptionShape& o : options) out.insert(out.end(), o.names.begin(), o.names.end());
  return out;
}

std::vector<std::string> CommandNames(std::span<const CommandShape> commands, bool old_face) {
  std::vector<std::string> out;
  for (const CommandShape& c : commands) {
    if (!old_face || !c.old_options.empty()) out.push_back(c.name);
  }
  return out;
}

// "      *:compare:--rules) …;;": what follows an option with a value.
std::string BashValues(std::string_view command, std::span<const OptionShape> options,
                       std::string_view face) {
  std::string out;
  for (const OptionShape& o : options) {
    if (!o.takes_value || o.names.empty()) continue;
    const ValueKind kind = KindOf(o.value);
    std::string pattern;
    for (const std::string& n : o.names)
      pattern += fmt::format("{}{}:{}:{}", pattern.empty() ? "" : "|", face, command, n);
    out += fmt::format("    {}) _msprobe_value {} {};;\n", pattern,
                       kind.file     ? "file"
                       : kind.folder ? "folder"
                                     : "none",
                       Quoted(fmt::format("{}", fmt::join(kind.words, " "))));
  }
  return out;
}

std::string BashOptions(const CommandShape& c, std::span<const OptionShape> options,
                        std::string_view face) {
  std::vector<std::string> words;
  bool file = false;
  for (const OptionShape& o : options) {
    if (!o.names.empty()) continue;
    const ValueKind kind = KindOf(o.value);
    file = file || kind.file || kind.folder;
    words.insert(words.end(), kind.words.begin(), kind.words.end());
  }
  return fmt::format("    {}:{}) _msprobe_value {} {} {};;\n", face, c.name, file ? "file" : "none",
                     Quoted(fmt::format("{}", fmt::join(words, " "))),
                     Quoted(fmt::format("{}", fmt::join(Names(options), " "))));
}

constexpr std::string_view kBashFunctions = R"(
# $1: file, folder or none; $2: words; $3: options, offered once a dash is there
_msprobe_value() {
  if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "$3" -- "$cur")); return; fi
  COMPREPLY=($(compgen -W "$2" -- "$cur"))
  case $1 in
    file) COMPREPLY+=($(compgen -f -- "$cur")); compopt -o filenames 2>/dev/null;;
    folder) COMPREPLY+=($(compgen -d -- "$cur")); compopt -o filenames 2>/dev/null;;
  esac
}

_msprobe() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} face=new at=1
  COMPREPLY=()
  local IFS=$' \t\n'
  case ${COMP_WORDS[1]} in
    -f|--framework) face=old at=3
      [[ $COMP_CWORD == 2 ]] && { _msprobe_value none pytorch; return; };;
  esac
  local command=${COMP_WORDS[at]}
  if [[ $COMP_CWORD -le $at ]]; then
)";

}  // namespace

ValueKind KindOf(std::string_view value) {
  ValueKind out;
  if (value.starts_with('[') && value.ends_with(']')) value = value.substr(1, value.size() - 2);
  while (!value.empty()) {
    const size_t bar = value.find('|');
    const std::string_view part = value.substr(0, bar);
    value = bar == std::string_view::npos ? std::string_view() : value.substr(bar + 1);
    if (part == "FILE" || part == "YAML" || part == "JSON" || part == "PATH" || part == "A" ||
        part == "B" || part == "SCRIPT") {
      out.file = true;
    } else if (part == "DIR") {
      out.folder = true;
    } else if (!part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
                 return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
               })) {
      out.words.emplace_back(part);
    }
  }
  return out;
}

std::string BashScript(std::span<const CommandShape> commands) {
  std::string out = fmt::format(kHead, "bash");
  out += kBashFunctions;
  out += fmt::format(
      "    case $face in\n"
      "      new) _msprobe_value none {} '-f --framework -h --help --version';;\n"
      "      old) _msprobe_value none {};;\n"
      "    esac\n    return\n  fi\n",
      Quoted(fmt::format("{}", fmt::join(CommandNames(commands, false), " "))),
      Quoted(fmt::format("{}", fmt::join(CommandNames(commands, true), " "))));
  std::string values, options;
  for (const CommandShape& c : commands) {
    values += BashValues(c.name, c.options, "new") + BashValues(c.name, c.old_options, "old");
    options += BashOptions(c, c.options, "new");
    if (!c.old_options.empty()) options += BashOptions(c, c.old_options, "old");
  }
  out += "  case $face:$command:$prev in\n" + values + "    *) case $face:$command in\n" + options +
         "    esac;;\n  esac\n}\ncomplete -F _msprobe msprobe\n";
  return out;
}

namespace {

std::string ZshAction(const OptionShape& o) {
  const ValueKind kind = KindOf(o.value);
  const std::string files = kind.file ? "_files" : kind.folder ? "_files -/" : "";
  std::string words = fmt::format("{}", fmt::join(kind.words, " "));
  const std::string title = ZshText(o.value.empty() ? "VALUE" : o.value);
  if (kind.words.empty()) return fmt::format(":{}:{}", title, files.empty() ? " " : files);
  if (files.empty()) return fmt::format(":{}:({})", title, words);
  return fmt::format(":{}:{{compadd {}; {}}}", title, words, files);
}

std::string ZshOptions(std::span<const OptionShape> options) {
  std::string out;
  int place = 0;
  for (const OptionShape& o : options) {
    if (o.names.empty()) {
      out += " " + Quoted(fmt::format("{}{}", ++place, ZshAction(o)));
      continue;
    }
    const std::string text =
        fmt::format("[{}]{}", ZshText(o.description), o.takes_value ? ZshAction(o) : "");
    const std::string all = fmt::format("{}", fmt::join(o.names, " "));
    for (const std::string& n : o.names)
      out += fmt::format(" \\\n        {}", Quoted(fmt::format("({}){}{}", all, n, text)));
  }
  return out;
}

}  // namespace

std::string ZshScript(std::span<const CommandShape> commands) {
  std::string out = "#compdef msprobe\n" + fmt::format(kHead, "zsh");
  std::string table[2], cases;
  for (const CommandShape& c : commands) {
    const std::string line = "    " + Quoted(ZshText(c.name) + ":" + c.summary) + "\n";
    table[0] += line;
    cases += fmt::format("    new:{}) _arguments{};;\n", c.name, ZshOptions(c.options));
    if (c.old_options.empty()) continue;
    table[1] += line;
    cases += fmt::format("    old:{}) _arguments{};;\n", c.name, ZshOptions(c.old_options));
  }
  out += fmt::format(
      "\n_msprobe() {{\n"
      "  local face=new at=2\n"
      "  local -a commands older\n"
      "  commands=(\n{}  )\n  older=(\n{}  )\n",
      table[0], table[1]);
  out += R"(  if [[ $words[2] == (-f|--framework) ]]; then
    face=old at=4
    if (( CURRENT == 3 )); then compadd pytorch; return; fi
    commands=("${older[@]}")
  fi
  if (( CURRENT <= at )); then
    _describe command commands
    [[ $face == new ]] && compadd -- -f --framework --help --version
    return
  fi
  local command=$words[at]
  shift $((at - 1)) words
  (( CURRENT -= at - 1 ))
  case $face:$command in
)" + cases +
         "  esac\n}\n\n"
         "if [[ $funcstack[1] == _msprobe ]]; then _msprobe \"$@\"; else compdef _msprobe msprobe; "
         "fi\n";
  return out;
}

namespace {

std::string FishOptions(std::string_view command, std::span<const OptionShape> options,
                        std::string_view face) {
  std::string out;
  for (const OptionShape& o : options) {
    const ValueKind kind = KindOf(o.value);
    std::string line = fmt::format("complete -c msprobe -n '__msprobe_at {} {}'", face, command);
    for (const std::string& n : o.names) {
      if (n.starts_with("--")) {
        line += " -l " + n.substr(2);
      } else {
        line += (n.size() == 2 ? " -s " : " -o ") + n.substr(1);
      }
    }
    if (o.takes_value && !o.names.empty()) line += kind.file || kind.folder ? " -rF" : " -x";
    if (!kind.words.empty())
      line += " -a " + FishQuoted(fmt::format("{}", fmt::join(kind.words, " ")));
    if (o.names.empty() && (kind.file || kind.folder)) line += " -F";
    out += line + " -d " + FishQuoted(o.description) + "\n";
  }
  return out;
}

}  // namespace

std::string FishScript(std::span<const CommandShape> commands) {
  std::string out = fmt::format(kHead, "fish");
  out += R"(
# Whether the command line is that of command $argv[2] in spelling $argv[1].
function __msprobe_at
    set -l words (commandline -opc)
    set -l face new
    set -l at 2
    if test (count $words) -ge 2; and contains -- $words[2] -f --framework
        set face old
        set at 4
    end
    test $face = $argv[1]; or return 1
    if test "$argv[2]" = ''
        test (count $words) -lt $at; and test (count $words) -ne 2 -o $face = new
        return
    end
    test (count $words) -ge $at; and test $words[$at] = $argv[2]
end
complete -c msprobe -f
complete -c msprobe -n 'test (count (commandline -opc)) -le 2' -s f -l framework -x -a pytorch -d 'the spelling of the 8.x releases'
complete -c msprobe -n '__msprobe_at new ""' -l version -d 'version of this program'
complete -c msprobe -n '__msprobe_at new ""' -s h -l help -d 'help'
)";
  for (const CommandShape& c : commands) {
    out += fmt::format("complete -c msprobe -n '__msprobe_at new \"\"' -a {} -d {}\n", c.name,
                       FishQuoted(c.summary));
    out += FishOptions(c.name, c.options, "new");
    if (c.old_options.empty()) continue;
    out += fmt::format("complete -c msprobe -n '__msprobe_at old \"\"' -a {} -d {}\n", c.name,
                       FishQuoted(c.summary));
    out += FishOptions(c.name, c.old_options, "old");
  }
  return out;
}

namespace {

void AddOptions(CLI::App& app, std::string& shell, TerminalFlags& flags) {
  SetUp(app);
  app.add_option("shell", shell, "the shell to complete in")
      ->type_name("bash|zsh|fish")
      ->group("Common");
  AddTerminalFlags(app, flags);
}

}  // namespace

std::vector<OptionShape> CompletionShape() {
  CLI::App app;
  std::string shell;
  TerminalFlags flags;
  AddOptions(app, shell, flags);
  return Shapes(app);
}

int RunCompletion(std::span<const std::string> arguments, std::span<const CommandShape> commands,
                  Terminal& terminal) {
  CLI::App parser;
  std::string shell;
  TerminalFlags flags;
  AddOptions(parser, shell, flags);
  std::vector<Error> problems = CheckArguments(parser, arguments);
  if (problems.empty()) problems = Parse(parser, arguments);
  if (problems.empty() && flags.help) {
    terminal.PrintAnswer(
        "Print the script that makes a shell complete commands and options.\n\n"
        "Usage: msprobe completion bash|zsh|fish\n\n"
        "  bash   source <(msprobe completion bash)        in ~/.bashrc\n"
        "  zsh    source <(msprobe completion zsh)         in ~/.zshrc, after compinit\n"
        "  fish   msprobe completion fish | source         in ~/.config/fish/config.fish\n\n" +
        OptionHelp(parser, "Terminal"));
    return kDone;
  }
  if (problems.empty() && shell.empty())
    problems.push_back(MissingOption("SHELL", "give bash, zsh or fish"));
  if (problems.empty() &&
      std::find(std::begin(kShells), std::end(kShells), shell) == std::end(kShells))
    problems.push_back(WrongValue("SHELL", shell, kShells));
  if (!problems.empty()) {
    terminal.PrintErrors(problems);
    return kRefused;
  }
  terminal.PrintAnswer(shell == "bash"  ? BashScript(commands)
                       : shell == "zsh" ? ZshScript(commands)
                                        : FishScript(commands));
  return kDone;
}

}  // namespace msprobe::cli
