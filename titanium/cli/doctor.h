// titanium doctor: looks at what a run depends on, before it starts.
#pragma once

#include "titanium/cli/commands.h"

namespace titanium::cli {

int run_doctor(Arguments args);

}  // namespace titanium::cli
