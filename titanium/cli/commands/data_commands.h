// The parts of `titanium data`. Each declares its options and returns what to do when it was chosen.
#pragma once

#include <functional>

#include "titanium/cli/command_line.h"

namespace titanium::cli {

using Action = std::function<int()>;

Action declare_inspect(CommandLine& app);
Action declare_prepare(CommandLine& app);

// `titanium data plan` and `prepare-images` take the options of a run, like `train`.
int plan_data(Arguments args);
int prepare_image_data(Arguments args);

}  // namespace titanium::cli
