// titanium convert
#pragma once

#include "titanium/cli/commands.h"

namespace titanium::cli {

int run_convert(Arguments args);

}  // namespace titanium::cli
