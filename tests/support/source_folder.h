// Where the files of this repository are.
#pragma once

#include <filesystem>

namespace titanium {

std::filesystem::path source_folder();

}  // namespace titanium
