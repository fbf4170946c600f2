// Files that come with the program: configurations, the sample corpus and its tokenizer.
#pragma once

#include <filesystem>

namespace titanium {

// `path` if it exists here; else the file of that name in the installed program's folder of shared files
// (share/titanium) or in the sources that the program was built in, where there is one; else `path` as it is.
std::filesystem::path bundled(const std::filesystem::path& path);

}  // namespace titanium
