// titanium launch: starts the processes of a job on this node.
#pragma once

#include "titanium/cli/commands.h"

namespace titanium::cli {

int run_launch(Arguments args);

}  // namespace titanium::cli
