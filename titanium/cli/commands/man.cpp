// titanium man: prints the manual page, made from the help of every command.
#include <fmt/format.h>

#include <cstdio>
#include <sstream>

#include "titanium/cli/command_line.h"
#include "titanium/cli/help.h"

namespace titanium::cli {
namespace {

constexpr const char* kHead = R"(.TH TITANIUM 1 "" "titanium" "User Commands"
.SH NAME
titanium \- pre\-train large generative models
.SH SYNOPSIS
.B titanium
.I command
.RI [ arguments ]
.SH DESCRIPTION
Titanium trains large models of texts and images on CPUs and NVIDIA GPUs. It reads the TOML files and options of torchtitan, and the
tokenizers and weights of Hugging Face. Every command explains itself with
.BR \-\-help .
)";

constexpr const char* kTail = R"(.SH EXIT STATUS
0: done. 1: failed while running. 2: wrong usage or configuration.
.SH ENVIRONMENT
.TP
.B NO_COLOR
Nothing is coloured.
.TP
.B LOG_RANK
Ranks whose output is shown, comma separated.
.TP
.BR HF_TOKEN ", " HF_HOME ", " HF_ENDPOINT
As Hugging Face's own tools have them.
.TP
.B TITANIUM_TORCH_DIR
The folder of an installed torch wheel that an installed titanium runs with.
.SH FILES
.TP
.I ./outputs
What a run writes, unless job.dump_folder names another folder: metrics.jsonl, run.jsonl, checkpoints.
)";

// Text that troff takes as it is.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else if (c == '\'') {
      result += "\\(aq";
    } else if (c == '`') {
      result += "\\(ga";
    } else if (c == '^') {
      result += "\\(ha";
    } else if (c == '~') {
      result += "\\(ti";
    } else {
      result += c;
    }
  }
  return result;
}

std::string section(const std::string& title, const std::string& help) {
  std::string text = fmt::format(".SS {}\n.nf\n", escaped(title));
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    const std::string shown = escaped(line);
    text += shown.starts_with('.') ? "\\&" + shown + "\n" : shown + "\n";
  }
  return text + ".fi\n";
}

}  // namespace

int run_man(Arguments args) {
  CommandLine app("Prints the manual page of all commands, for man.", "man");
  if (!app.parse(args)) return 0;
  std::string page = kHead;
  std::string_view group;
  for (const Command& command : commands()) {
    if (command.group != group) {
      group = command.group;
      std::string title(group);
      for (char& c : title) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      page += fmt::format(".SH {}\n", title);
    }
    const std::string name(command.name);
    page += section("titanium " + name, help_of(command));
    if (name == "config" || name == "completion") continue;  // their help has all of it
    std::istringstream subcommands{std::string(command.subcommands)};
    for (std::string word; subcommands >> word;)
      page += section(fmt::format("titanium {} {}", name, word), help_of(command, word));
  }
  std::fputs((page + kTail).c_str(), stdout);
  return 0;
}

}  // namespace titanium::cli
