// titanium report
#pragma once

#include "titanium/cli/commands.h"

namespace titanium::cli {

int run_report(Arguments args);

}  // namespace titanium::cli
