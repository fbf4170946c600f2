#include "titanium/base/bundled.h"

#include <system_error>

namespace titanium {

std::filesystem::path bundled(const std::filesystem::path& path) {
  std::error_code ignored;
  if (path.empty() || path.is_absolute() || std::filesystem::exists(path, ignored)) return path;
  // The program is PREFIX/lib/titanium/titanium.
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const auto shared = program.parent_path().parent_path().parent_path() / "share/titanium" / path.lexically_normal();
  return std::filesystem::exists(shared, ignored) ? shared : path;
}

}  // namespace titanium
