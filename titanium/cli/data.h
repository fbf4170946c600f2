// titanium data: looks at training data, tokenises it, and says what a run will read.
#pragma once

#include "titanium/cli/commands.h"

namespace titanium::cli {

int run_data(Arguments args);

}  // namespace titanium::cli
