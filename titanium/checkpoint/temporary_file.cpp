#include "titanium/checkpoint/temporary_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "titanium/base/error.h"

namespace titanium::checkpoint {
namespace {

void check_written(bool good, const std::filesystem::path& path, int error) {
  TI_CHECK(good, "{} cannot be written: {}. Check permissions and free space.", path.string(), std::strerror(error));
}

}  // namespace

TemporaryFile::TemporaryFile(const std::filesystem::path& target)
    : target_(target), path_(target.string() + fmt::format(".{}.tmp", ::getpid())) {
  if (target.has_parent_path()) {
    std::error_code error;
    std::filesystem::create_directories(target.parent_path(), error);
    check_written(!error, target.parent_path(), error.value());
  }
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  check(file_ >= 0);
}

TemporaryFile::~TemporaryFile() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(path_.c_str());
}

void TemporaryFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    check(written >= 0);
    bytes = bytes.subspan(static_cast<size_t>(written));
    size_ += static_cast<uint64_t>(written);
  }
}

void TemporaryFile::publish() {
  check(::fsync(file_) == 0);
  check(::rename(path_.c_str(), target_.c_str()) == 0);
  ::close(std::exchange(file_, -1));
}

void TemporaryFile::check(bool good) const { check_written(good, target_, errno); }

void sync_folder(const std::filesystem::path& folder) {
  const int file = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  check_written(file >= 0, folder, errno);
  const bool good = ::fsync(file) == 0;
  const int error = errno;
  ::close(file);
  check_written(good, folder, error);
}

}  // namespace titanium::checkpoint
