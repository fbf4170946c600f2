#include "titanium/base/files/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "titanium/base/error.h"

namespace titanium {

FileLock::FileLock(const std::filesystem::path& path) {
  std::filesystem::create_directories(path.parent_path());
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0664);
  TI_CHECK(file_ >= 0, "{} cannot be locked: {}. Check its permissions.", path.string(), std::strerror(errno));
  while (::flock(file_, LOCK_EX) != 0 && errno == EINTR) {
  }
}

FileLock::~FileLock() { ::close(file_); }

}  // namespace titanium
