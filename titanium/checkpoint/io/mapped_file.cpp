#include "titanium/checkpoint/io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "titanium/base/error.h"
#include "titanium/remote/reading/byte_source.h"
#include "titanium/remote/transport/url.h"

namespace titanium::checkpoint {

MappedFile::MappedFile(const std::filesystem::path& path, std::string_view what) {
  if (remote::is_url(path.string())) {
    const auto source = remote::open_bytes(path.string());
    fetched_.resize(static_cast<size_t>(source->size()));
    source->read(0, {reinterpret_cast<char*>(fetched_.data()), fetched_.size()});
    bytes_ = fetched_;
    return;
  }
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  TI_CHECK(file >= 0, "{} {} cannot be opened: {}. Check the path and its permissions.", what, path.string(),
           std::strerror(errno));
  struct stat status{};
  const bool known = ::fstat(file, &status) == 0;
  const auto size = static_cast<size_t>(status.st_size);
  void* memory = nullptr;
  const bool regular = known && S_ISREG(status.st_mode);
  if (regular && size > 0) {
    memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file, 0);
  }
  const int error = errno;
  ::close(file);  // the mapping stays
  TI_CHECK(regular, "{} {} is not a regular file. Name a file.", what, path.string());
  TI_CHECK(memory != MAP_FAILED, "{} {} cannot be mapped: {}.", what, path.string(), std::strerror(error));
  bytes_ = {static_cast<std::byte*>(memory), size};
  range_.emplace(bytes_, path.string());
}

MappedFile::~MappedFile() {
  const bool mapped = range_.has_value();
  range_.reset();
  if (mapped && !bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace titanium::checkpoint
