#include "tests/support/source_folder.h"

namespace titanium {

std::filesystem::path source_folder() { return TITANIUM_SOURCE_DIR; }

}  // namespace titanium
