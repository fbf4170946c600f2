// titanium generate
#pragma once

#include "titanium/cli/commands.h"

namespace titanium::cli {

int run_generate(Arguments args);

}  // namespace titanium::cli
