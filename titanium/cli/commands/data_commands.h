// The parts of `titanium data`. Each declares its options on a CLI11 app and returns what to do when it was chosen.
#pragma once

#include <functional>

#include "titanium/cli/commands.h"

namespace CLI {
class App;
}

namespace titanium::cli {

using Action = std::function<int()>;

Action declare_inspect(CLI::App& app);
Action declare_prepare(CLI::App& app);

// `titanium data plan` and `prepare-images` take the options of a run, like `train`.
int plan_data(Arguments args);
int prepare_image_data(Arguments args);

}  // namespace titanium::cli
