#include "titanium/cli/commands.h"

#include "titanium/cli/config.h"

namespace titanium::cli {
namespace {

constexpr Command kCommands[] = {
    {"config", "show, check and explain configurations", run_config},
};

}  // namespace

std::span<const Command> commands() { return kCommands; }

}  // namespace titanium::cli
