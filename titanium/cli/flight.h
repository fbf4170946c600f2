// titanium flight analyze: who is to blame when a job has hung.
#pragma once

#include "titanium/cli/commands.h"

namespace titanium::cli {

int run_flight(Arguments args);

}  // namespace titanium::cli
