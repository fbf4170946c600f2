// The subcommands of `titanium`. Each lives in the file of its name, gets the arguments after its own name, and returns
// the exit code: 0 done, 1 runtime failure, 2 bad usage or configuration (usually by throwing UsageError).
//
// The table is the one source of `titanium --help`, of shell completion and of the man page.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace titanium::cli {

using Arguments = std::span<const std::string>;

struct Command {
  std::string_view group;  // commands of a group follow one another
  std::string_view name;
  std::string_view summary;
  int (*run)(Arguments args);
  std::string_view subcommands = "";  // names, separated by spaces
  bool takes_run_options = false;     // --section.key of titanium train
};

std::span<const Command> commands();

}  // namespace titanium::cli
