// titanium completion bash|zsh: prints a script for the shell, with the commands, subcommands, options and values of
// this program.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <regex>
#include <set>
#include <sstream>

#include "titanium/cli/command_line.h"
#include "titanium/cli/help.h"
#include "titanium/config/schema/schema.h"

namespace titanium::cli {
namespace {

// The options that a help text lists, those of titanium train left out.
std::string options_in(const std::string& help) {
  static const std::regex kOption(R"((^|[ ,])(--[a-z][a-z_-]*)(?![a-z_.-]))");
  std::set<std::string> names;
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("  ") || line.starts_with("Example:")) continue;
    for (std::sregex_iterator found(line.begin(), line.end(), kOption), end; found != end; ++found) {
      names.insert((*found)[2]);
    }
  }
  names.insert("--quiet");
  return fmt::format("{}", fmt::join(names, " "));
}

// The texts that an option allows, as its expectation quotes them.
std::string values_of(const config::Option& option) {
  static const std::regex kQuoted("\"([^\"]*)\"");
  const std::string text = option.expectation();
  std::vector<std::string> values;
  for (std::sregex_iterator found(text.begin(), text.end(), kQuoted), end; found != end; ++found)
    values.push_back((*found)[1]);
  return fmt::format("{}", fmt::join(values, " "));
}

std::string run_options() {
  std::string names;
  for (const config::Option& option : config::schema().options()) names += fmt::format(" --{}", option.name());
  return names.substr(1);
}

std::string command_cases() {
  std::string cases;
  for (const Command& command : commands()) {
    cases += fmt::format("    {}) words=\"{}\" subcommands=\"{}\" run={} ;;\n", command.name,
                         options_in(help_of(command)), command.subcommands, command.takes_run_options ? 1 : 0);
  }
  return cases;
}

std::string subcommand_cases() {
  std::string cases;
  for (const Command& command : commands()) {
    if (command.name == "completion" || command.name == "config") continue;
    std::istringstream names{std::string(command.subcommands)};
    for (std::string name; names >> name;) {
      const std::string path = fmt::format("{} {}", command.name, name);
      cases += fmt::format("    \"{}\") words=\"{}\" run={} ;;\n", path, options_in(help_of(command, name)),
                           takes_run_options(path) ? 1 : 0);
    }
  }
  return cases;
}

std::string value_cases() {
  std::string cases;
  for (const config::Option& option : config::schema().options()) {
    if (const std::string values = values_of(option); !values.empty()) {
      cases += fmt::format("    --{}) values=\"{}\" ;;\n", option.name(), values);
    }
  }
  return cases;
}

// %NAME% stands for what is put in. Files are completed where no word of ours fits.
constexpr const char* kScript =
    R"(# Completion of titanium for bash. Put it into a start-up file: source <(titanium completion bash)
_titanium() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} at=1 i
  COMPREPLY=()
  for ((i = 2; i < COMP_CWORD; i++)); do
    if [[ ${COMP_WORDS[i]} == -- ]]; then at=$((i + 1)); fi
  done
  if ((COMP_CWORD == at)); then
    COMPREPLY=($(compgen -W "%COMMANDS% --help --version" -- "$current"))
    return
  fi
  local command=${COMP_WORDS[at]} words= subcommands= run=0 values=
  case $previous in
%VALUES%    *) ;;
  esac
  case $command in
%CASES%    *) return ;;
  esac
  if [[ -n $values && $run == 1 ]]; then
    COMPREPLY=($(compgen -W "$values" -- "$current"))
    return
  fi
  if [[ -n $subcommands && $current != -* ]] && ((COMP_CWORD == at + 1)); then
    COMPREPLY=($(compgen -W "$subcommands" -- "$current"))
    return
  fi
  case "$command ${COMP_WORDS[at+1]}" in
%SUBCASES%    *) ;;
  esac
  if [[ $run == 1 ]]; then words="$words %OPTIONS%"; fi
  if [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$current"))
  fi
}
complete -o default -F _titanium titanium
)";

std::string filled(std::string text, const std::string& name, const std::string& value) {
  for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + value.size())) {
    text.replace(at, name.size(), value);
  }
  return text;
}

// zsh reads bash's completions when it is told to. It sources the script, or finds it as _titanium in a folder of
// $fpath; then it calls it at the first word to complete, and the registered function from then on.
constexpr const char* kZshHead = R"(#compdef titanium
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -u; }
autoload -Uz bashcompinit && bashcompinit
)";
constexpr const char* kZshTail = R"([[ ${funcstack[1]} != _titanium ]] || _bash_complete -o default -F _titanium_words
)";

std::string bash_script() {
  std::string names;
  for (const Command& command : commands()) names += fmt::format("{}{}", names.empty() ? "" : " ", command.name);
  std::string script = filled(kScript, "%COMMANDS%", names);
  script = filled(script, "%VALUES%", value_cases());
  script = filled(script, "%CASES%", command_cases());
  script = filled(script, "%SUBCASES%", subcommand_cases());
  return filled(script, "%OPTIONS%", run_options());
}

}  // namespace

int run_completion(Arguments args) {
  std::string shell;
  CommandLine app("Prints a script that completes commands, options and values in a shell.", "completion");
  app.option("shell", shell, "bash or zsh").required().one_of({"bash", "zsh"});
  if (!app.parse(args)) return 0;
  std::string script = bash_script();
  if (shell == "zsh") script = kZshHead + filled(script, "_titanium", "_titanium_words") + kZshTail;
  std::fputs(script.c_str(), stdout);
  return 0;
}

}  // namespace titanium::cli
