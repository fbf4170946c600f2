// titanium watch
#pragma once

#include "titanium/cli/commands.h"

namespace titanium::cli {

int run_watch(Arguments args);

}  // namespace titanium::cli
