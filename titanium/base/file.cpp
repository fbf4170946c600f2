#include "titanium/base/file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "titanium/base/error.h"

namespace titanium {

std::string read_file(const std::filesystem::path& path, std::string_view what) {
  std::error_code ignored;
  TI_CHECK(std::filesystem::exists(path, ignored), "{} {} does not exist. Check the path.", what, path.string());
  TI_CHECK(!std::filesystem::is_directory(path, ignored), "{} {} is a directory. Name a file inside it.", what,
           path.string());
  std::ifstream in(path, std::ios::binary);
  TI_CHECK(in.good(), "{} {} cannot be read: {}. Check its permissions.", what, path.string(), std::strerror(errno));
  std::ostringstream content;
  content << in.rdbuf();
  TI_CHECK(!in.bad(), "{} {} cannot be read: {}.", what, path.string(), std::strerror(errno));
  return std::move(content).str();
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path());
  const std::filesystem::path temporary = path.string() + fmt::format(".{}.tmp", ::getpid());
  {
    std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
    out.write(content.data(), static_cast<std::streamsize>(content.size()));
    out.flush();
    TI_CHECK(out.good(), "{} cannot be written: {}. Check permissions and free space.", path.string(),
             std::strerror(errno));
  }
  std::filesystem::rename(temporary, path);
}

}  // namespace titanium
