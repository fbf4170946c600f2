// Which algorithm each matrix product uses, and the file that remembers it.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace titanium::ops {

// Product, as gemm.h names it -> algorithm, the library's own bytes in hexadecimal.
using GemmChoices = std::map<std::string, std::string>;

// Where the choices for a GPU are kept: a file of its own for each GPU and version of the library, in
// $TITANIUM_CACHE_DIR, or else titanium/ in the user's cache folder ($XDG_CACHE_HOME or ~/.cache). Empty if there is no
// such folder.
std::filesystem::path gemm_choices_file(const std::string& gpu, const std::string& library_version);

// Nothing if there is no such file. Throws Error with the line and the remedy if it is damaged.
GemmChoices read_gemm_choices(const std::filesystem::path& file);
// Adds to what the file has; atomically.
void write_gemm_choices(const std::filesystem::path& file, const GemmChoices& choices);

}  // namespace titanium::ops
