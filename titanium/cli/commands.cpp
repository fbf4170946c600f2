#include "titanium/cli/commands.h"

#include "titanium/cli/tokenize.h"
#include "titanium/cli/tokenizer.h"

namespace titanium::cli {
namespace {

constexpr Command kCommands[] = {
    {"tokenize", "text lines to token ids, and back", tokenize},
    {"tokenizer", "learns a tokenizer from text", tokenizer},
};

}  // namespace

std::span<const Command> commands() { return kCommands; }

}  // namespace titanium::cli
