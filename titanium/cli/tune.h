// titanium tune
#pragma once

#include "titanium/cli/commands.h"

namespace titanium::cli {

int run_tune(Arguments args);

}  // namespace titanium::cli
