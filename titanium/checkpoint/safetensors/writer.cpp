#include "titanium/checkpoint/safetensors/writer.h"

#include <set>

#include "titanium/base/error.h"
#include "titanium/checkpoint/io/temporary_file.h"
#include "titanium/checkpoint/safetensors/header.h"

namespace titanium::checkpoint {
namespace {

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
  file.write(head);
  for (const NamedTensor* named : order) {
    const Tensor host = named->tensor.detach().cpu().contiguous();
    file.write({static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes()});
  }
  file.publish();
}

}  // namespace titanium::checkpoint
