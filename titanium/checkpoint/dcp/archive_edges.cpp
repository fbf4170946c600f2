#include "titanium/checkpoint/dcp/archive_edges.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "titanium/base/error.h"

namespace titanium::checkpoint {
namespace {

constexpr int64_t kEdge = int64_t{16} << 10;

}  // namespace

ArchiveEdges::ArchiveEdges(const remote::ByteSource& file, int64_t offset, int64_t length) {
  if (length == 0) return;
  const auto size = static_cast<size_t>(length);
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TI_CHECK(memory != MAP_FAILED, "{} bytes of addresses cannot be had: {}. Raise the limit of virtual memory.", length,
           std::strerror(errno));
  bytes_ = {static_cast<std::byte*>(memory), size};
  const auto fetch = [&](int64_t begin, int64_t end) {
    file.read(offset + begin, {static_cast<char*>(memory) + begin, static_cast<size_t>(end - begin)});
  };
  try {
    if (length <= 2 * kEdge) {
      fetch(0, length);
    } else {
      fetch(0, kEdge);
      fetch(length - kEdge, length);
    }
  } catch (...) {
    ::munmap(memory, size);
    throw;
  }
}

ArchiveEdges::~ArchiveEdges() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace titanium::checkpoint
