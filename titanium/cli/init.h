// titanium init: a configuration that fits the GPUs that are named, with the reason for each choice.
#pragma once

#include "titanium/cli/commands.h"

namespace titanium::cli {

int run_init(Arguments args);

}  // namespace titanium::cli
