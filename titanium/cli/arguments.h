// Command lines of the small commands, read with CLI11.
#pragma once

#include "titanium/cli/commands.h"

namespace CLI {
class App;
}

namespace titanium::cli {

// Fills the options of `app`. Returns false when the user asked for --help, which is then on stdout. Throws UsageError
// for a wrong command line.
bool parse_arguments(CLI::App& app, Arguments args);

}  // namespace titanium::cli
