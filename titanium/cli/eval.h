// titanium eval
#pragma once

#include "titanium/cli/commands.h"

namespace titanium::cli {

int run_eval(Arguments args);

}  // namespace titanium::cli
