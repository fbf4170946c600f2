// titanium generate-image
#pragma once

#include "titanium/cli/commands.h"

namespace titanium::cli {

int run_generate_image(Arguments args);

}  // namespace titanium::cli
