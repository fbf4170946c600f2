// titanium man: the manual page, made from the help of every command.
#pragma once

#include "titanium/cli/commands.h"

namespace titanium::cli {

int run_man(Arguments args);

}  // namespace titanium::cli
