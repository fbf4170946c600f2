// titanium checkpoint
#pragma once

#include "titanium/cli/commands.h"

namespace titanium::cli {

int run_checkpoint(Arguments args);

}  // namespace titanium::cli
