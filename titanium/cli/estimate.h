// titanium estimate
#pragma once

#include "titanium/cli/commands.h"

namespace titanium::cli {

int run_estimate(Arguments args);

}  // namespace titanium::cli
