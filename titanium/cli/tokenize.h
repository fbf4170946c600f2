// titanium tokenize: text lines to token ids, and back.
#pragma once

#include "titanium/cli/commands.h"

namespace titanium::cli {

int tokenize(Arguments args);

}  // namespace titanium::cli
