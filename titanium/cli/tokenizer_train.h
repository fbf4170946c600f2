// titanium tokenizer train: learns a tokenizer from text.
#pragma once

#include "titanium/cli/commands.h"

namespace titanium::cli {

int tokenizer(Arguments args);

}  // namespace titanium::cli
