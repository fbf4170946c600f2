// titanium train
#pragma once

#include "titanium/cli/commands.h"

namespace titanium::cli {

int run_train(Arguments args);

}  // namespace titanium::cli
