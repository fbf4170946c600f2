#include "titanium/cli/commands.h"

#include "titanium/cli/tokenize.h"

namespace titanium::cli {
namespace {

constexpr Command kCommands[] = {
    {"tokenize", "text lines to token ids, and back", tokenize},
};

}  // namespace

std::span<const Command> commands() { return kCommands; }

}  // namespace titanium::cli
