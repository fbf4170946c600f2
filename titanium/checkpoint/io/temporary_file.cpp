#include "titanium/checkpoint/io/temporary_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "titanium/base/error.h"
#include "titanium/remote/stores/object_writer.h"
#include "titanium/remote/transport/url.h"

namespace titanium::checkpoint {
namespace {

constexpr size_t kBlockBytes = 8 << 20;
constexpr size_t kPage = 4096;  // what direct writes are aligned to

std::string_view remedy(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "Free some space there, or choose another folder.";
    case EFBIG:
      return "Raise the limit on the size of files (ulimit -f).";
    case EACCES:
    case EPERM:
      return "Get permission to write there, or choose another folder.";
    case EROFS:
      return "The file system is read-only: choose another folder.";
    default:
      return "Check the path and the disk.";
  }
}

void check_written(bool good, const std::filesystem::path& path, int error) {
  TI_CHECK(good, "{} cannot be written: {}. {}", path.string(), std::strerror(error), remedy(error));
}

}  // namespace

TemporaryFile::TemporaryFile(const std::filesystem::path& target)
    : target_(target), path_(target.string() + fmt::format(".{}.tmp", ::getpid())) {
  if (remote::is_url(target.string())) {
    object_ = std::make_unique<remote::ObjectWriter>(target.string());
    return;
  }
  filling_.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, kBlockBytes)));
  resting_.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, kBlockBytes)));
  if (target.has_parent_path()) {
    std::error_code error;
    std::filesystem::create_directories(target.parent_path(), error);
    check_written(!error, target.parent_path(), error.value());
  }
  check_written(filling_ && resting_, target_, ENOMEM);
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  check(file_ >= 0);
}

TemporaryFile::~TemporaryFile() {
  if (writing_.valid()) writing_.wait();
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(path_.c_str());
}

void TemporaryFile::write(std::span<const std::byte> bytes) {
  if (object_) {
    size_ += bytes.size();
    return object_->write(bytes);
  }
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), kBlockBytes - filled_));
    std::memcpy(filling_.get() + filled_, piece.data(), piece.size());
    filled_ += piece.size();
    size_ += piece.size();
    if (filled_ == kBlockBytes) finish_block();
    bytes = bytes.subspan(piece.size());
  }
}

void TemporaryFile::finish_block() {
  if (writing_.valid()) writing_.get();
  if (size_ == kBlockBytes) set_direct(true);  // a file that is smaller is not worth it
  std::swap(filling_, resting_);
  filled_ = 0;
  writing_ = std::async(std::launch::async,
                        [this, position = size_ - kBlockBytes] { write_at({resting_.get(), kBlockBytes}, position); });
}

void TemporaryFile::write_at(std::span<const std::byte> bytes, uint64_t position) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(position));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EINVAL && direct_ && set_direct(false)) continue;
    check(written >= 0);
    bytes = bytes.subspan(static_cast<size_t>(written));
    position += static_cast<uint64_t>(written);
  }
}

bool TemporaryFile::set_direct(bool direct) {
  const bool done = ::fcntl(file_, F_SETFL, direct ? O_DIRECT : 0) == 0;
  if (done) direct_ = direct;
  return done;
}

void TemporaryFile::publish() {
  if (object_) return object_->publish();
  if (writing_.valid()) writing_.get();
  const size_t pages = filled_ / kPage * kPage;
  write_at({filling_.get(), pages}, size_ - filled_);
  if (direct_) set_direct(false);
  write_at({filling_.get() + pages, filled_ - pages}, size_ - filled_ + pages);
  check(::fsync(file_) == 0);
  check(::rename(path_.c_str(), target_.c_str()) == 0);
  ::close(std::exchange(file_, -1));
}

void TemporaryFile::check(bool good) const { check_written(good, target_, errno); }

void sync_folder(const std::filesystem::path& folder) {
  if (remote::is_url(folder.string())) return;
  const int file = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  check_written(file >= 0, folder, errno);
  const bool good = ::fsync(file) == 0;
  const int error = errno;
  ::close(file);
  check_written(good, folder, error);
}

}  // namespace titanium::checkpoint
