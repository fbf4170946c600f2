#include "titanium/checkpoint/dcp_writer.h"

#include <algorithm>
#include <future>

#include "titanium/base/error.h"
#include "titanium/checkpoint/boxes.h"
#include "titanium/checkpoint/crc32.h"
#include "titanium/checkpoint/temporary_file.h"
#include "titanium/checkpoint/torch_archive.h"

namespace titanium::checkpoint {
namespace {

constexpr size_t kBlockBytes = 1 << 20;  // small enough that a block's checksum and its write find it in the cache
constexpr uint64_t kAlignment = 64;      // of archives in a file, so that tensors are aligned when mapped

struct FilePlan {
  std::string name;
  std::vector<const DcpTensorItem*> tensors;
  std::vector<const DcpObjectItem*> objects;
  uint64_t bytes = 0;
};
using Locations = std::map<DcpIndex, DcpLocation>;

// The largest first, each into the file that is smallest by then.
std::vector<FilePlan> plan_files(int rank, std::span<const DcpTensorItem> tensors,
                                 std::span<const DcpObjectItem> objects, int files) {
  std::vector<FilePlan> plans(static_cast<size_t>(std::max(files, 1)));
  for (const DcpObjectItem& object : objects) plans.front().objects.push_back(&object);
  std::vector<const DcpTensorItem*> order;
  for (const DcpTensorItem& item : tensors) {
    if (item.tensor.numel() > 0 || volume(item.global_shape) == 0) order.push_back(&item);
  }
  std::ranges::stable_sort(order, std::greater<>(), [](const DcpTensorItem* item) { return item->tensor.nbytes(); });
  for (const DcpTensorItem* item : order) {
    FilePlan& smallest = *std::ranges::min_element(plans, {}, &FilePlan::bytes);
    smallest.tensors.push_back(item);
    smallest.bytes += item->tensor.nbytes();
  }
  std::erase_if(plans, [](const FilePlan& plan) { return plan.tensors.empty() && plan.objects.empty(); });
  for (size_t k = 0; k < plans.size(); ++k) plans[k].name = fmt::format("__{}_{}.distcp", rank, k);
  return plans;
}

void write_tensor(TemporaryFile& file, const Tensor& tensor) {
  const Tensor host = tensor.detach().cpu().contiguous();
  TorchTensorArchive archive(host.scalar_type(), host.sizes().vec());
  file.write(archive.head());
  std::span<const std::byte> rest(static_cast<const std::byte*>(host.const_data_ptr()), archive.data_size());
  uint32_t crc = 0;
  while (!rest.empty()) {
    const auto block = rest.first(std::min(rest.size(), kBlockBytes));
    crc = crc32(block, crc);
    file.write(block);
    rest = rest.subspan(block.size());
  }
  file.write(archive.tail(crc));
}

Locations write_file(const std::filesystem::path& folder, const FilePlan& plan) {
  TemporaryFile file(folder / plan.name);
  Locations locations;
  const auto place = [&](DcpIndex index, const auto& write) {
    file.write(std::string((kAlignment - file.size() % kAlignment) % kAlignment, '\0'));
    const auto begin = static_cast<int64_t>(file.size());
    write();
    const auto length = static_cast<int64_t>(file.size()) - begin;
    locations[std::move(index)] = {.file = plan.name, .offset = begin, .length = length, .transforms = {}};
  };
  for (const DcpObjectItem* item : plan.objects) {
    place({item->name, std::nullopt}, [&] { file.write(torch_archive_of(item->value)); });
  }
  for (const DcpTensorItem* item : plan.tensors) {
    place({item->name, item->box.offset}, [&] { write_tensor(file, item->tensor); });
  }
  file.publish();
  return locations;
}

void add_tensor(const DcpTensorItem& item, DcpMetadata& metadata) {
  TI_ASSERT(lies_inside(item.box, item.global_shape) && item.tensor.sizes() == at::IntArrayRef(item.box.shape),
            "{}: box {} is not that of the tensor", item.name, to_string(item.box));
  const DcpTensor description{item.tensor.scalar_type(), item.requires_grad, item.global_shape, {}};
  const auto [found, first] = metadata.entries.emplace(item.name, description);
  auto* tensor = std::get_if<DcpTensor>(&found->second);
  TI_CHECK(tensor != nullptr && tensor->shape == item.global_shape && tensor->dtype == item.tensor.scalar_type(),
           "\"{}\" is given twice with different shapes or dtypes. Names in a checkpoint are unique.", item.name);
  const bool stored = item.tensor.numel() > 0 || volume(item.global_shape) == 0;
  if (stored) tensor->chunks.push_back(item.box);
  if (!item.path.empty()) metadata.paths[item.name] = item.path;
}

}  // namespace

DcpMetadata write_dcp_files(const std::filesystem::path& folder, int rank, std::span<const DcpTensorItem> tensors,
                            std::span<const DcpObjectItem> objects, int files) {
  DcpMetadata metadata;
  for (const DcpTensorItem& item : tensors) add_tensor(item, metadata);
  for (const DcpObjectItem& item : objects) {
    TI_CHECK(metadata.entries.emplace(item.name, DcpObject{}).second,
             "\"{}\" is given twice. Names in a checkpoint are unique.", item.name);
    if (!item.path.empty()) metadata.paths[item.name] = item.path;
  }
  std::vector<std::future<Locations>> running;
  for (FilePlan& plan : plan_files(rank, tensors, objects, files)) {
    running.push_back(
        std::async(std::launch::async, [&folder, plan = std::move(plan)] { return write_file(folder, plan); }));
  }
  for (auto& file : running) metadata.locations.merge(file.get());
  if (!running.empty()) sync_folder(folder);
  return metadata;
}

void write_dcp_metadata(const std::filesystem::path& folder, const DcpMetadata& metadata) {
  TemporaryFile file(folder / ".metadata");
  file.write(format_dcp_metadata(metadata));
  file.publish();
  sync_folder(folder);
}

}  // namespace titanium::checkpoint
