// titanium completion bash|zsh: a script for the shell, with the commands, subcommands, options and values of this
// program.
#pragma once

#include "titanium/cli/commands.h"

namespace titanium::cli {

int run_completion(Arguments args);

}  // namespace titanium::cli
