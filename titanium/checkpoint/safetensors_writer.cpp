#include "titanium/checkpoint/safetensors_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>

#include "titanium/base/error.h"
#include "titanium/checkpoint/safetensors_header.h"

namespace titanium::checkpoint {
namespace {

// Written beside its place, then moved there; removed when something fails before that.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& target)
      : target_(target), path_(target.string() + fmt::format(".{}.tmp", ::getpid())) {
    if (target.has_parent_path()) std::filesystem::create_directories(target.parent_path());
    file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    check(file_ >= 0);
  }
  ~TemporaryFile() {
    if (file_ < 0) return;
    ::close(file_);
    ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(const void* data, size_t size) {
    const auto* bytes = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t written = ::write(file_, bytes, size);
      if (written < 0 && errno == EINTR) continue;
      check(written >= 0);
      bytes += written;
      size -= static_cast<size_t>(written);
    }
  }
  // The bytes are on the disk before the name is.
  void publish() {
    check(::fsync(file_) == 0);
    std::filesystem::rename(path_, target_);
    ::close(std::exchange(file_, -1));
  }

 private:
  void check(bool good) const {
    TI_CHECK(good, "{} cannot be written: {}. Check permissions and free space.", target_.string(),
             std::strerror(errno));
  }

  std::filesystem::path target_;
  std::filesystem::path path_;
  int file_ = -1;
};

// Wide dtypes first: then every tensor is aligned, and readers need no copy.
std::vector<const NamedTensor*> in_file_order(std::span<const NamedTensor> tensors) {
  std::vector<const NamedTensor*> order;
  std::set<std::string_view> names;
  for (const NamedTensor& named : tensors) {
    TI_CHECK(names.insert(named.name).second, "tensor \"{}\" is given twice. Names in a safetensors file are unique.",
             named.name);
    order.push_back(&named);
  }
  std::ranges::sort(order, {}, [](const NamedTensor* named) {
    return std::pair(-named->tensor.element_size(), std::string_view(named->name));
  });
  return order;
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  const auto order = in_file_order(tensors);
  SafetensorsHeader header{.data_offset = 0, .entries = {}, .metadata = metadata};
  uint64_t position = 0;
  for (const NamedTensor* named : order) {
    const uint64_t end = position + named->tensor.nbytes();
    header.entries.push_back({named->name, named->tensor.scalar_type(), named->tensor.sizes().vec(), position, end});
    position = end;
  }
  const std::string head = format_safetensors_header(header);
  TemporaryFile file(path);
  file.write(head.data(), head.size());
  for (const NamedTensor* named : order) {
    const Tensor host = named->tensor.detach().cpu().contiguous();
    file.write(host.const_data_ptr(), host.nbytes());
  }
  file.publish();
}

}  // namespace titanium::checkpoint
