#include "titanium/base/bundled.h"

#include <system_error>

namespace titanium {

std::filesystem::path bundled(const std::filesystem::path& path) {
  std::error_code ignored;
  if (path.empty() || path.is_absolute() || std::filesystem::exists(path, ignored)) return path;
  // The program is PREFIX/lib/titanium/titanium, or in the build folder of the sources.
  const auto above = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path().parent_path();
  for (const auto& folder : {above.parent_path() / "share/titanium", above}) {
    const auto found = folder / path.lexically_normal();
    if (std::filesystem::exists(found, ignored)) return found;
  }
  return path;
}

}  // namespace titanium
