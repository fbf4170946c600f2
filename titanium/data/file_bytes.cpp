#include "titanium/data/file_bytes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "titanium/base/error.h"
#include "titanium/remote/transport/url.h"

namespace titanium::data {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;
constexpr int64_t kMostDecompressed = int64_t{1} << 31;

std::string decompressed(const std::filesystem::path& path, Compression compression) {
  std::string content;
  const auto stream = open_byte_stream(path, compression);
  for (;;) {
    const size_t size = content.size();
    content.resize(size + kChunkBytes);
    const size_t count = stream->read(content.data() + size, kChunkBytes);
    content.resize(size + count);
    if (count == 0) return content;
    TI_CHECK(static_cast<int64_t>(content.size()) <= kMostDecompressed,
             "Data file {} holds more than {} bytes, too many to decompress in memory. Decompress the file.",
             path.string(), kMostDecompressed);
  }
}

}  // namespace

FileBytes::FileBytes(std::filesystem::path path, Compression compression, int64_t largest_window)
    : path_(std::move(path)) {
  if (compression != Compression::kNone) {
    content_ = decompressed(path_, compression);
    size_ = static_cast<int64_t>(content_.size());
    return;
  }
  if (remote::is_url(path_.string())) {
    remote_ = std::make_unique<remote::WindowedBytes>(remote::open_bytes(path_.string()), largest_window);
    size_ = remote_->size();
    return;
  }
  file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  TI_CHECK(file_ >= 0, "Data file {} cannot be opened: {}. Check the path and its permissions.", path_.string(),
           std::strerror(errno));
  struct stat status{};
  if (::fstat(file_, &status) == 0) size_ = status.st_size;
}

FileBytes::~FileBytes() {
  if (file_ >= 0) ::close(file_);
}

void FileBytes::check(int64_t offset, int64_t count, int64_t width) const {
  const bool inside = offset >= 0 && offset <= size_ && count >= 0 && count <= (size_ - offset) / width;
  TI_CHECK(inside,
           "Data file {} has {} bytes and should have {} numbers of {} bytes from byte {} on: it is truncated "
           "or damaged. Fetch or make it again.",
           path_.string(), size_, count, width, offset);
}

void FileBytes::read(int64_t offset, std::span<char> out) const {
  check(offset, static_cast<int64_t>(out.size()), 1);
  if (remote_) return remote_->read(offset, out);
  if (file_ < 0) {
    std::memcpy(out.data(), content_.data() + offset, out.size());
    return;
  }
  while (!out.empty()) {
    const ssize_t count = ::pread(file_, out.data(), out.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    TI_CHECK(count > 0, "Data file {} cannot be read at byte {}: {}. Check the disk.", path_.string(), offset,
             count < 0 ? std::strerror(errno) : "it has become shorter");
    out = out.subspan(static_cast<size_t>(count));
    offset += count;
  }
}

std::string FileBytes::text(int64_t offset, int64_t size) const {
  check(offset, size, 1);
  std::string bytes(static_cast<size_t>(size), '\0');
  read(offset, bytes);
  return bytes;
}

}  // namespace titanium::data
