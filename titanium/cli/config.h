// `titanium config show|check|options`: what a configuration resolves to, whether it is valid, what there is to set.
#pragma once

#include "titanium/cli/commands.h"

namespace titanium::cli {

int run_config(Arguments args);

}  // namespace titanium::cli
