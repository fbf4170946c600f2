#include "titanium/cli/commands.h"

namespace titanium::cli {
namespace {

constexpr std::array<Command, 0> kCommands = {};

}  // namespace

std::span<const Command> commands() { return kCommands; }

}  // namespace titanium::cli
