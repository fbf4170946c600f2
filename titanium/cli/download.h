// titanium download: files of a repository of the Hugging Face hub.
#pragma once

#include "titanium/cli/commands.h"

namespace titanium::cli {

int run_download(Arguments args);

}  // namespace titanium::cli
