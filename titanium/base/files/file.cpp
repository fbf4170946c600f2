#include "titanium/base/files/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "titanium/base/error.h"

namespace titanium {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_to_write(const fs::path& path, int error) {
  throw Error(
      fmt::format("{} cannot be written: {}. Check permissions and free space.", path.string(), std::strerror(error)));
}

// The error number, 0 when all is written. Closes the file.
int write_and_close(int file, std::string_view content) {
  int error = 0;
  while (!content.empty() && error == 0) {
    const ssize_t written = ::write(file, content.data(), content.size());
    if (written >= 0) content.remove_prefix(static_cast<size_t>(written));
    if (written < 0 && errno != EINTR) error = errno;
  }
  if (::close(file) != 0 && error == 0) error = errno;
  return error;
}

// A file that nobody else has, beside `path`; its descriptor.
int open_beside(const fs::path& path, mode_t mode, fs::path& name) {
  static std::atomic<unsigned> count = 0;
  for (;;) {
    name = path.string() + fmt::format(".{}.{}.tmp", ::getpid(), count++);
    const int file = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (file >= 0) return file;
    if (errno != EEXIST) refuse_to_write(path, errno);
  }
}

// Where the links end that begin at `path`; what they name need not exist.
fs::path follow_links(fs::path path) {
  constexpr int kMostLinks = 40;
  for (int links = 0; fs::is_symlink(fs::symlink_status(path)); ++links) {
    if (links == kMostLinks) refuse_to_write(path, ELOOP);
    path = path.parent_path() / fs::read_symlink(path);
  }
  return path;
}

void replace_file(const fs::path& path, std::string_view content, const struct stat* previous) {
  fs::path temporary;
  const int file = open_beside(path, 0666, temporary);
  if (previous) ::fchmod(file, previous->st_mode & 07777);
  int error = write_and_close(file, content);
  if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return;
  ::unlink(temporary.c_str());
  refuse_to_write(path, error);
}

}  // namespace

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
  std::error_code failed;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), failed);
  TI_CHECK(!failed, "the folder {} cannot be made: {}. Check the path and its permissions.",
           path.parent_path().string(), failed.message());
  const std::filesystem::path target = follow_links(path);
  struct stat status{};
  const bool exists = ::stat(target.c_str(), &status) == 0;
  if (!exists || S_ISREG(status.st_mode)) return replace_file(target, content, exists ? &status : nullptr);
  const int file = ::open(target.c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0) refuse_to_write(path, errno);
  if (const int error = write_and_close(file, content)) refuse_to_write(path, error);
}

}  // namespace titanium
