// The help of the program and of its commands: within a screen of 100 columns, in groups, with an example at the end.
// Completion and the man page are made from the same texts.
#pragma once

#include "titanium/cli/commands.h"

namespace titanium::cli {

// titanium --help.
std::string program_help();

// titanium train --help: the options that most runs set, from the schema. `titanium config options` has all.
std::string train_help();

// Says which command's help show_help will be asked for; `args` may begin with a subcommand.
void set_help_command(const std::string& name, const Command& command, Arguments args);

// Prints the help of a command, wrapped, with its example at the end.
void show_help(const std::string& text);

// What `titanium COMMAND [SUBCOMMAND] --help` prints.
std::string help_of(const Command& command, const std::string& subcommand = "");

}  // namespace titanium::cli
