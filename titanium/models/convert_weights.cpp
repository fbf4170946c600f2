#include "titanium/models/convert_weights.h"

#include <ATen/ops/empty.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>

#include "titanium/base/error.h"
#include "titanium/base/terminal/progress.h"
#include "titanium/checkpoint/boxes.h"
#include "titanium/checkpoint/dcp/writer.h"
#include "titanium/checkpoint/io/mapped_file.h"
#include "titanium/checkpoint/io/temporary_file.h"
#include "titanium/checkpoint/safetensors/header.h"
#include "titanium/checkpoint/step_folders.h"
#include "titanium/checkpoint/step_objects.h"
#include "titanium/checkpoint/torch_file/writer.h"
#include "titanium/models/hugging_face_export.h"
#include "titanium/models/model_weights.h"
#include "titanium/models/registry.h"
#include "titanium/remote/reading/byte_source.h"
#include "titanium/remote/stores/object_writer.h"
#include "titanium/remote/transport/url.h"

namespace titanium::models {
namespace {

namespace fs = std::filesystem;
using checkpoint::DcpPath;

constexpr uint64_t kDcpFileBytes = uint64_t{128} << 20;  // held in memory until it is written
constexpr size_t kUploadedPiece = size_t{16} << 20;      // between two looks at the progress

struct OutputTensor {
  std::string name;
  DcpPath path;
  Dtype dtype;
  Shape shape;
};

// What is to be written, and how to get it.
struct Output {
  std::vector<OutputTensor> tensors;
  std::vector<std::pair<std::string, DcpPath>> values;
  std::function<void(const std::string& name, const Box& box, const Tensor& destination)> read;

  int64_t bytes() const {
    int64_t sum = 0;
    for (const OutputTensor& tensor : tensors) {
      sum += volume(tensor.shape) * static_cast<int64_t>(c10::elementSize(tensor.dtype));
    }
    return sum;
  }
  // Slices of all tensors in their order.
  void for_each_slice(const std::function<void(const OutputTensor&, const Box&, const Tensor&)>& use) const {
    Progress progress("converting weights", bytes(), ProgressUnit::kBytes);
    int64_t done = 0;
    for (const OutputTensor& tensor : tensors) {
      checkpoint::for_each_slice(tensor.shape, tensor.dtype, checkpoint::kSliceBytes, [&](const Box& box) {
        const Tensor slice = at::empty(box.shape, at::TensorOptions(tensor.dtype));
        read(tensor.name, box, slice);
        use(tensor, box, slice);
        progress.update(done += static_cast<int64_t>(slice.nbytes()));
      });
    }
  }
};

// The one dtype of all parameters, if there is such.
Dtype common_dtype(const Model& model, const ModelWeights& weights) {
  std::set<Dtype> dtypes;
  for (const Parameter* parameter : model.parameters()) dtypes.insert(weights.dtype(parameter->fqn));
  return dtypes.size() == 1 ? *dtypes.begin() : at::kFloat;
}

Output output_of_model(const Model& model, const std::shared_ptr<const ModelWeights>& weights,
                       std::optional<Dtype> dtype) {
  Output output;
  for (const auto& [fqn, shape] : model.stored_tensors()) {
    output.tensors.push_back({fqn, {fqn}, dtype.value_or(weights->dtype(fqn)), shape});
  }
  output.read = [weights](const std::string& name, const Box& box, const Tensor& destination) {
    weights->read(name, box, destination);
  };
  return output;
}

Output output_of_everything(const checkpoint::WeightsSource& source, std::optional<Dtype> dtype) {
  Output output;
  for (const auto& [name, tensor] : source.tensors()) {
    const bool cast = dtype && c10::isFloatingType(tensor.dtype) && !is_training_state(name);
    output.tensors.push_back({name, source.path_to(name), cast ? *dtype : tensor.dtype, tensor.shape});
  }
  for (const std::string& name : source.values()) output.values.emplace_back(name, source.path_to(name));
  output.read = [&source](const std::string& name, const Box& box, const Tensor& destination) {
    source.read(name, box, destination);
  };
  return output;
}

std::span<const std::byte> bytes_of(const Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

void write_torch(const checkpoint::WeightsSource& source, const Output& output, const fs::path& target) {
  std::vector<checkpoint::TorchFileItem> items;
  for (const OutputTensor& tensor : output.tensors) {
    items.push_back({tensor.path, checkpoint::TorchFileItem::TensorKind{tensor.dtype, tensor.shape}});
  }
  for (const auto& [name, path] : output.values) items.push_back({path, source.value(name)});
  checkpoint::TorchFileWriter writer(target, items);
  output.for_each_slice([&](const OutputTensor&, const Box&, const Tensor& slice) { writer.write(bytes_of(slice)); });
  writer.publish();
}

void write_dcp(const checkpoint::WeightsSource& source, const Output& output, const fs::path& folder) {
  std::vector<checkpoint::DcpObjectItem> objects;
  for (const auto& [name, path] : output.values) objects.push_back({name, source.value(name), path});
  std::vector<checkpoint::DcpPart> parts;
  std::vector<checkpoint::DcpTensorItem> pending;
  uint64_t bytes = 0;
  const auto flush = [&] {
    parts.push_back(checkpoint::write_dcp_files(folder, static_cast<int>(parts.size()), pending, objects, /*files=*/1));
    pending.clear(), objects.clear();
    bytes = 0;
  };
  output.for_each_slice([&](const OutputTensor& tensor, const Box& box, const Tensor& slice) {
    pending.push_back({tensor.name, tensor.shape, box, slice, false, tensor.path});
    bytes += slice.nbytes();
    if (bytes >= kDcpFileBytes) flush();
  });
  if (!pending.empty() || !objects.empty()) flush();
  checkpoint::publish_dcp(folder, parts, source.facts());
}

// Refuses a model that nobody else publishes.
checkpoint::SafetensorsHeader header_with_other_names(const Model& model, const std::vector<OutputTensor>& tensors) {
  checkpoint::SafetensorsHeader header{.data_offset = 0, .entries = {}, .metadata = {{"format", "pt"}}};
  uint64_t end = 0;
  for (const OutputTensor& tensor : tensors) {
    const auto pieces = hugging_face_of(model).other_pieces(tensor.name, tensor.shape);
    if (pieces.empty()) {
      throw UsageError(
          "this model's weights have no other names than ours and Hugging Face's. Convert them to hf, dcp or torch.");
    }
    TI_ASSERT(pieces.size() == 1 && pieces.front().shape() == tensor.shape, "{} is not one tensor there", tensor.name);
    const uint64_t begin = end;
    end += static_cast<uint64_t>(volume(tensor.shape)) * c10::elementSize(tensor.dtype);
    header.entries.push_back({pieces.front().name, tensor.dtype, tensor.shape, begin, end});
  }
  return header;
}

// Tensors are ours but for their names, so slices follow each other in the file as they come.
void write_other_names(const Model& model, const Output& output, const fs::path& target) {
  const auto header = header_with_other_names(model, output.tensors);
  checkpoint::TemporaryFile file(target);
  file.write(checkpoint::format_safetensors_header(header));
  output.for_each_slice([&](const OutputTensor&, const Box&, const Tensor& slice) { file.write(bytes_of(slice)); });
  file.publish();
}

void write_hugging_face(const Model& model, const Output& output, const fs::path& folder, const fs::path& assets) {
  const HuggingFaceExport out(model, output.tensors.front().dtype, assets);
  out.create_files(folder);
  output.for_each_slice([&](const OutputTensor& tensor, const Box& box, const Tensor& slice) {
    out.write(folder, tensor.name, box, slice);
  });
  out.finish(folder);
  out.seal(folder);
}

// What stands where the target is to be.
struct Found {
  bool is_there = false;
  bool is_folder = false;
  bool holds_weights = false;  // or nothing
};

bool is_folder_format(WeightsFormat format) {
  return format == WeightsFormat::kDcp || format == WeightsFormat::kHuggingFace;
}

bool is_address(const fs::path& target) { return remote::is_url(target.string()); }

// Also what a conversion has left that did not come to its end.
bool tells_of_weights(const std::string& name) {
  return checkpoint::is_marker(name) || checkpoint::says_unfinished(name) || name == "consolidated.00.pth";
}

Found look_at_address(const fs::path& target) {
  if (remote::exists(target.string())) return {.is_there = true};
  const std::vector<remote::RemoteFile> files = remote::list_files(target.string() + "/");
  return {!files.empty(), true,
          std::ranges::any_of(files, [](const auto& file) { return tells_of_weights(file.name); })};
}

Found look_at(const fs::path& target) {
  if (is_address(target)) return look_at_address(target);
  if (!fs::exists(fs::symlink_status(target))) return {};
  if (!fs::is_directory(target)) return {.is_there = true};
  const auto tells = [](const fs::directory_entry& entry) {
    return tells_of_weights(entry.path().filename().string());
  };
  return {true, true, fs::is_empty(target) || std::ranges::any_of(fs::directory_iterator(target), tells)};
}

void check_target(const fs::path& target, const ConvertOptions& options) {
  if (is_address(target) && !remote::is_writable_address(target.string())) {
    throw UsageError(
        fmt::format("{} cannot be written: only s3:// and gs:// can. Name one of them, or a folder.", target.string()));
  }
  const Found found = look_at(target);
  if (!found.is_there) return;
  if (!options.replace) {
    throw UsageError(fmt::format("{} exists. Name another place, or give --force to replace it.", target.string()));
  }
  const bool is_folder = found.is_folder;
  if (is_folder == is_folder_format(options.to) && (!is_folder || found.holds_weights)) return;
  throw UsageError(
      fmt::format("{} is a {} that holds something else than the {} to be written: it is not replaced, even "
                  "with --force. Name another place, or remove it.",
                  target.string(), is_folder ? "folder" : "file", is_folder ? "weights" : "folder"));
}

// The objects at an address, marked as unfinished until the last of them is there, and removed when something fails
// before that.
void write_objects(const fs::path& target, const std::function<void()>& write) {
  checkpoint::remove_step_objects(target);
  checkpoint::mark_unfinished(target);
  try {
    write();
  } catch (...) {
    checkpoint::abandon_step_objects(target);
    throw;
  }
  checkpoint::unmark_unfinished(target);
}

// Sends a folder to an address, file by file and piece by piece; last what makes it whole.
void send_folder(const fs::path& folder, const fs::path& target) {
  std::vector<std::string> names;
  int64_t all = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
    all += static_cast<int64_t>(entry.file_size());
  }
  std::ranges::sort(names, {}, [](const std::string& name) { return std::pair(checkpoint::is_marker(name), name); });
  Progress progress("uploading", all, ProgressUnit::kBytes);
  for (const std::string& name : names) {
    const checkpoint::MappedFile file(folder / name, "file");
    checkpoint::TemporaryFile object(target / name);
    for (auto bytes = file.bytes(); !bytes.empty();) {
      const auto piece = bytes.first(std::min(bytes.size(), kUploadedPiece));
      object.write(piece);
      bytes = bytes.subspan(piece.size());
      progress.add(static_cast<int64_t>(piece.size()));
    }
    object.publish();
  }
}

// By way of a folder of this machine, because the files of Hugging Face weights are not written from front to back.
void write_by_way_of_disk(const fs::path& target, const std::function<void(const fs::path&)>& write) {
  std::string folder = (fs::temp_directory_path() / "titanium-convert-XXXXXX").string();
  TI_CHECK(::mkdtemp(folder.data()) != nullptr, "{} cannot be made: {}. Check TMPDIR, its permissions and free space.",
           folder, std::strerror(errno));
  std::error_code ignored;
  try {
    write(folder);
    write_objects(target, [&] { send_folder(folder, target); });
  } catch (...) {
    fs::remove_all(folder, ignored);
    throw;
  }
  fs::remove_all(folder, ignored);
}

// A folder under a name of its own, which then takes the target's place; removed when something fails before that.
void write_folder(const fs::path& target, const std::function<void(const fs::path&)>& write) {
  const fs::path written = target.string() + fmt::format(".{}.tmp", ::getpid());
  const fs::path former = target.string() + fmt::format(".{}.old", ::getpid());
  std::error_code error;
  fs::remove_all(written, error);
  try {
    fs::create_directories(written, error);
    TI_CHECK(!error, "{} cannot be made: {}. Check permissions and free space.", written.string(), error.message());
    write(written);
    if (fs::exists(target)) fs::rename(target, former);
    fs::rename(written, target);
  } catch (...) {
    fs::remove_all(written, error);
    throw;
  }
  checkpoint::sync_folder(fs::absolute(target).parent_path());
  fs::remove_all(former, error);
}

fs::path without_last_slash(const fs::path& path) { return path.has_filename() ? path : path.parent_path(); }

bool has_other_names(const Model& model) {
  const auto tensors = model.stored_tensors();
  const auto& [fqn, shape] = tensors.front();
  return model.hugging_face() != nullptr && !model.hugging_face()->other_pieces(fqn, shape).empty();
}

}  // namespace

std::string family_with_other_names() {
  const auto has_them = [](const std::string& name) {
    JobConfig config;
    config.model.name = name;
    config.model.flavor = find_model(name).flavors.front();
    return has_other_names(*build_model(config, std::nullopt));
  };
  const std::vector<std::string> names = model_names();
  const auto found = std::ranges::find_if(names, has_them);
  TI_ASSERT(found != names.end(), "a format for the names of no family");
  return *found;
}

void convert_weights(const checkpoint::WeightsSource& source, const fs::path& given, const ConvertOptions& options) {
  const fs::path target = without_last_slash(given);
  const bool has_one_dtype = options.to == WeightsFormat::kHuggingFace || options.to == WeightsFormat::kOtherNames;
  TI_ASSERT(options.model != nullptr || !has_one_dtype, "names that are not ours are those of a model");
  check_target(target, options);
  Output output;
  if (options.model != nullptr) {
    const auto weights = std::make_shared<ModelWeights>(*options.model, source);
    std::optional<Dtype> dtype = options.dtype;
    if (has_one_dtype && !dtype) dtype = common_dtype(*options.model, *weights);
    output = output_of_model(*options.model, weights, dtype);
  } else {
    output = output_of_everything(source, options.dtype);
  }
  const auto as_dcp = [&](const fs::path& folder) { write_dcp(source, output, folder); };
  const auto as_hugging_face = [&](const fs::path& folder) {
    write_hugging_face(*options.model, output, folder, options.assets);
  };
  switch (options.to) {
    case WeightsFormat::kTorch:
      return write_torch(source, output, target);
    case WeightsFormat::kOtherNames:
      return write_other_names(*options.model, output, target);
    case WeightsFormat::kDcp:
      if (!is_address(target)) return write_folder(target, as_dcp);
      return write_objects(target, [&] { as_dcp(target); });
    case WeightsFormat::kHuggingFace:
      return is_address(target) ? write_by_way_of_disk(target, as_hugging_face) : write_folder(target, as_hugging_face);
  }
}

}  // namespace titanium::models
