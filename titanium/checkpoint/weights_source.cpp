#include "titanium/checkpoint/weights_source.h"

#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <set>

#include "titanium/base/error.h"
#include "titanium/base/text/nearest_name.h"
#include "titanium/base/text/printable.h"
#include "titanium/checkpoint/boxes.h"
#include "titanium/checkpoint/safetensors/reader.h"
#include "titanium/checkpoint/torch_file/dtype.h"
#include "titanium/checkpoint/torch_file/former_file.h"
#include "titanium/remote/digest.h"
#include "titanium/remote/reading/local_copy.h"
#include "titanium/remote/transport/url.h"

namespace titanium::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTorchFile = "pytorch_model.bin";  // of models that were published before safetensors
constexpr std::string_view kKinds =
    "a distributed checkpoint (.metadata), Hugging Face weights (model.safetensors or pytorch_model.bin), Meta's "
    "shards "
    "(consolidated.00.pth) "
    "or a file of torch.save or safetensors";

bool is_torch_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, 16> head{};
  file.read(head.data(), head.size());
  return std::string_view(head.data(), 4) == "PK\x03\x04" || is_former_torch_file(std::as_bytes(std::span(head)));
}

// The last of the folders step-N, as a hint.
std::string hint_of(const fs::path& folder) {
  std::pair<int64_t, std::string> latest{-1, ""};
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    int64_t step = -1;
    if (std::sscanf(name.c_str(), "step-%ld", &step) == 1) latest = std::max(latest, {step, entry.path().string()});
  }
  return latest.first < 0 ? "" : fmt::format(" Did you mean {}?", latest.second);
}

// The first, the middle and the last row of a tensor, as far as there are as many; all of a tensor without dims.
std::vector<Box> some_rows(const Shape& shape) {
  if (shape.empty()) return {whole_box(shape)};
  if (shape[0] == 0) return {};
  std::vector<Box> rows;
  for (const int64_t row : std::set<int64_t>{0, shape[0] / 2, shape[0] - 1}) {
    Box& box = rows.emplace_back(whole_box(shape));
    box.offset[0] = row;
    box.shape[0] = 1;
  }
  return rows;
}

}  // namespace

std::unique_ptr<WeightsSource> open_weights(const fs::path& path) {
  if (remote::is_url(path.string())) {  // these are read where they are, all else is fetched
    if (remote::exists((path / ".metadata").string())) return open_dcp(path);
    return open_weights(remote::local_copy(path.string()));
  }
  if (!fs::exists(path)) throw UsageError(fmt::format("{} does not exist. Name {}.", path.string(), kKinds));
  if (!fs::is_directory(path)) return is_torch_file(path) ? open_torch_file(path) : open_safetensors(path);
  if (fs::exists(path / ".metadata")) return open_dcp(path);
  if (find_safetensors(path)) return open_safetensors(path);
  if (fs::exists(path / kTorchFile)) return open_torch_file(path / kTorchFile);
  if (fs::exists(path / "consolidated.00.pth")) return open_meta_shards(path);
  throw UsageError(fmt::format("folder {} holds no weights: it is not {}.{}", path.string(), kKinds, hint_of(path)));
}

const SourceTensor& WeightsSource::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, tensor] : tensors_) names.push_back(known);
  const auto near = nearest_name(name, names);
  throw Error(fmt::format("{} has no tensor \"{}\"{}. Check the name, and that the weights are of this model.", path_,
                          name, near ? fmt::format(" (the nearest is \"{}\")", printable(*near)) : ""));
}

void WeightsSource::read(const std::string& name, const Box& box, const Tensor& destination) const {
  const SourceTensor& found = tensor(name);
  const Dtype wanted = destination.scalar_type();
  TI_CHECK(found.dtype == wanted || (c10::isFloatingType(found.dtype) && c10::isFloatingType(wanted)),
           "{}: \"{}\" has dtype {}, but {} is expected. Check that the weights are of this model.", path_,
           printable(name), torch_dtype(found.dtype).name, torch_dtype(wanted).name);
  TI_ASSERT(lies_inside(box, found.shape) && destination.sizes() == at::IntArrayRef(box.shape),
            "{} does not fit into the destination of {}", to_string(box), name);
  if (destination.numel() > 0) copy_box(name, box, destination);
}

PickleValue WeightsSource::value(const std::string& name) const {
  throw Error(fmt::format("{} has no value \"{}\". Check the name.", path_, name));
}

WeightsSource::Verification WeightsSource::verify() const {
  Verification found{.damage = {}, .checked = "but without checksums, so that changed bytes would not be noticed"};
  for (const auto& [name, tensor] : tensors_) {
    try {
      for_each_slice(tensor.shape, tensor.dtype, kSliceBytes, [&](const Box& slice) {
        read(name, slice, at::empty(slice.shape, at::TensorOptions(tensor.dtype)));
      });
    } catch (const Error& error) {
      found.damage.emplace_back(error.what());
    }
  }
  return found;
}

std::string fingerprint(const WeightsSource& source) {
  remote::Sha256 digest;
  for (const auto& [name, tensor] : source.tensors()) {
    digest.update(fmt::format("{} {} [{}]\n", name, torch_dtype(tensor.dtype).name, fmt::join(tensor.shape, ", ")));
    for (const Box& box : some_rows(tensor.shape)) {
      const Tensor row = at::empty(box.shape, at::TensorOptions(tensor.dtype));
      source.read(name, box, row);
      digest.update({static_cast<const char*>(row.const_data_ptr()), row.nbytes()});
    }
  }
  return remote::to_hex(digest.finish()).substr(0, 16);
}

}  // namespace titanium::checkpoint
