// titanium inspect
#pragma once

#include "titanium/cli/commands.h"

namespace titanium::cli {

int run_inspect(Arguments args);

}  // namespace titanium::cli
