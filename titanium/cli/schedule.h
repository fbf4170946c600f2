// titanium schedule show: the table of a pipeline schedule as text and picture.
#pragma once

#include "titanium/cli/commands.h"

namespace titanium::cli {

int run_schedule(Arguments args);

}  // namespace titanium::cli
