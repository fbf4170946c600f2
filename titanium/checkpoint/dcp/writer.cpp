#include "titanium/checkpoint/dcp/writer.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <charconv>
#include <future>

#include "titanium/base/error.h"
#include "titanium/base/terminal/progress.h"
#include "titanium/checkpoint/boxes.h"
#include "titanium/checkpoint/io/crc32.h"
#include "titanium/checkpoint/io/temporary_file.h"
#include "titanium/checkpoint/sidecar.h"
#include "titanium/checkpoint/torch_file/archive.h"

namespace titanium::checkpoint {
namespace {

constexpr size_t kPieceBytes = 256 << 10;    // small enough that its checksum and its copy find it in the cache
constexpr int64_t kStagingBytes = 64 << 20;  // of a tensor on a GPU
constexpr size_t kLengthDigits = 16;
constexpr uint64_t kAlignment = 64;  // of archives in a file, so that tensors are aligned when mapped

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

// A file whose checksum is made while its bytes are in the cache on their way to the disk.
class SummedFile {
 public:
  SummedFile(const std::filesystem::path& folder, const std::string& name) : name_(name), file_(folder / name) {}

  uint64_t size() const { return file_.size(); }
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  // Returns the CRC-32 of the bytes.
  uint32_t write(std::span<const std::byte> bytes) {
    sums_.take_crc();
    for (; !bytes.empty(); bytes = bytes.subspan(std::min(bytes.size(), kPieceBytes))) {
      const auto piece = bytes.first(std::min(bytes.size(), kPieceBytes));
      sums_.add(piece);
      file_.write(piece);
    }
    return sums_.take_crc();
  }
  FileSum publish() {
    file_.publish();
    return sums_.finish(name_);
  }

 private:
  std::string name_;
  TemporaryFile file_;
  FileSummer sums_;
};

std::span<const std::byte> bytes_of(const Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

// Returns the CRC-32 of the tensor's bytes.
uint32_t write_data(SummedFile& file, const Tensor& contiguous) {
  if (contiguous.is_cpu()) return file.write(bytes_of(contiguous));
  const Tensor flat = contiguous.view(-1);
  const int64_t step = kStagingBytes / flat.element_size();
  const Tensor staging = at::empty({std::min(step, flat.numel())}, flat.options().device(at::kCPU).pinned_memory(true));
  uint32_t crc = 0;
  for (int64_t at = 0; at < flat.numel(); at += step) {
    const int64_t count = std::min(step, flat.numel() - at);
    const Tensor block = staging.narrow(0, 0, count);
    block.copy_(flat.narrow(0, at, count));
    crc = crc32_combine(crc, file.write(bytes_of(block)), block.nbytes());
  }
  return crc;
}

void write_tensor(SummedFile& file, const Tensor& tensor) {
  TorchTensorArchive archive(tensor.scalar_type(), tensor.sizes().vec());
  file.write(archive.head());
  const uint32_t crc = write_data(file, tensor.detach().contiguous());
  file.write(archive.tail(crc));
}

struct WrittenFile {
  Locations locations;
  FileSum sum;
};

WrittenFile write_file(const std::filesystem::path& folder, const FilePlan& plan, Progress* progress) {
  const c10::NoGradGuard no_grad;
  SummedFile file(folder, plan.name);
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
    if (progress != nullptr) progress->add(static_cast<int64_t>(item->tensor.nbytes()));
  }
  FileSum sum = file.publish();
  return {std::move(locations), std::move(sum)};
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

// On the disk, name included, when it returns.
void write_whole(const std::filesystem::path& path, std::string_view content) {
  TemporaryFile file(path);
  file.write(content);
  file.publish();
  sync_folder(path.parent_path());
}

}  // namespace

DcpPart write_dcp_files(const std::filesystem::path& folder, int rank, std::span<const DcpTensorItem> tensors,
                        std::span<const DcpObjectItem> objects, int files, const std::string& label) {
  DcpPart part;
  DcpMetadata& metadata = part.metadata;
  for (const DcpTensorItem& item : tensors) add_tensor(item, metadata);
  for (const DcpObjectItem& item : objects) {
    TI_CHECK(metadata.entries.emplace(item.name, DcpObject{}).second,
             "\"{}\" is given twice. Names in a checkpoint are unique.", item.name);
    if (!item.path.empty()) metadata.paths[item.name] = item.path;
  }
  std::optional<Progress> progress;
  if (!label.empty()) {
    int64_t bytes = 0;
    for (const DcpTensorItem& item : tensors) bytes += static_cast<int64_t>(item.tensor.nbytes());
    progress.emplace(label, bytes, ProgressUnit::kBytes);
  }
  Progress* const shown = progress ? &*progress : nullptr;
  std::vector<std::future<WrittenFile>> running;
  for (FilePlan& plan : plan_files(rank, tensors, objects, files)) {
    running.push_back(std::async(std::launch::async,
                                 [&folder, plan = std::move(plan), shown] { return write_file(folder, plan, shown); }));
  }
  for (auto& file : running) {
    WrittenFile written = file.get();
    metadata.locations.merge(written.locations);
    part.sums.push_back(std::move(written.sum));
  }
  if (!running.empty()) sync_folder(folder);
  return part;
}

// The sums in the form of the sidecar, with its length in front, then the index.
std::string format_dcp_part(const DcpPart& part) {
  Sidecar sidecar;
  for (const FileSum& sum : part.sums) sidecar.sums.emplace(sum.file, sum);
  const std::string sums = format_sidecar(sidecar);
  return fmt::format("{:016x}", sums.size()) + sums + format_dcp_metadata(part.metadata);
}

DcpPart parse_dcp_part(std::span<const std::byte> bytes, const std::string& what) {
  const auto* begin = reinterpret_cast<const char*>(bytes.data());
  uint64_t size = 0;
  const bool has_size = bytes.size() >= kLengthDigits &&
                        std::from_chars(begin, begin + kLengthDigits, size, 16).ptr == begin + kLengthDigits;
  TI_CHECK(has_size && size <= bytes.size() - kLengthDigits,
           "{}: {} bytes are not what a rank says that it has written. Use the same program on all ranks.", what,
           bytes.size());
  bytes = bytes.subspan(kLengthDigits);
  DcpPart part{.metadata = parse_dcp_metadata(bytes.subspan(size), what), .sums = {}};
  for (const auto& [file, sum] : parse_sidecar(bytes.first(size), what).sums) part.sums.push_back(sum);
  return part;
}

void publish_dcp(const std::filesystem::path& folder, std::span<const DcpPart> parts,
                 const std::map<std::string, std::string>& facts) {
  std::vector<DcpMetadata> metadata;
  Sidecar sidecar{.facts = facts, .sums = {}};
  for (const DcpPart& part : parts) {
    metadata.push_back(part.metadata);
    for (const FileSum& sum : part.sums) {
      TI_CHECK(sidecar.sums.emplace(sum.file, sum).second,
               "file {} was written by two ranks. Give each rank a number of its own.", (folder / sum.file).string());
    }
  }
  const std::string index = format_dcp_metadata(merge_dcp_metadata(metadata));
  sidecar.sums[".metadata"] = sum_of(".metadata", std::as_bytes(std::span(index)));
  write_whole(folder / kSidecarFile, format_sidecar(sidecar));
  write_whole(folder / ".metadata", index);
}

}  // namespace titanium::checkpoint
