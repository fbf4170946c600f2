#include "titanium/checkpoint/safetensors/reader.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <nlohmann/json.hpp>

#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/base/text/json.h"
#include "titanium/base/text/nearest_name.h"
#include "titanium/base/text/printable.h"
#include "titanium/checkpoint/boxes.h"
#include "titanium/checkpoint/stored_copy.h"

namespace titanium::checkpoint {

using nlohmann::json;

std::map<std::string, std::string> read_safetensors_index(const std::filesystem::path& index) {
  json document;
  try {
    document = parse_json(read_file(index, "index of weights"));
  } catch (const JsonError& error) {
    throw Error(fmt::format("{} {}. Fetch or write it again.", index.string(), error.what()));
  }
  TI_CHECK(document.is_object() && document.contains("weight_map") && document["weight_map"].is_object(),
           "{} has no object \"weight_map\" from tensor names to files. Fetch or write it again.", index.string());
  std::map<std::string, std::string> shards;
  for (const auto& [name, shard] : document["weight_map"].items()) {
    const std::string file = shard.is_string() ? shard.get<std::string>() : "";
    TI_CHECK(
        !file.empty() && file != ".." && file.find('/') == std::string::npos && file.find('\0') == std::string::npos,
        "{}: tensor \"{}\" lies in {}, which is not the name of a file beside the index. Correct the index.",
        index.string(), printable(name), printable(shard.dump(-1, ' ', false, json::error_handler_t::replace)));
    shards[name] = file;
  }
  return shards;
}

std::optional<std::filesystem::path> find_safetensors(const std::filesystem::path& folder) {
  for (const char* name : {"model.safetensors", "model.safetensors.index.json", "diffusion_pytorch_model.safetensors",
                           "diffusion_pytorch_model.safetensors.index.json"}) {
    for (const auto& path : {folder / name, folder / "transformer" / name}) {
      if (std::filesystem::exists(path)) return path;
    }
  }
  return std::nullopt;
}

SafetensorsReader::File::File(const std::filesystem::path& path)
    : path(path.string()),
      memory(path, "safetensors file"),
      header(parse_safetensors_header(memory.bytes(), this->path)) {}

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path) : path_(path.string()) {
  namespace fs = std::filesystem;
  const auto found = fs::is_directory(path) ? find_safetensors(path) : std::optional(path);
  TI_CHECK(found,
           "folder {} has neither model.safetensors nor model.safetensors.index.json. Name a folder with Hugging Face "
           "weights, or a safetensors file.",
           path_);
  found->extension() == ".json" ? open_index(*found) : open_file(*found);
}

void SafetensorsReader::open_file(const std::filesystem::path& path) {
  files_.push_back(std::make_shared<File>(path));
  for (const SafetensorsEntry& entry : files_.back()->header.entries) tensors_[entry.name] = {files_.back(), &entry};
}

void SafetensorsReader::open_index(const std::filesystem::path& index) {
  const auto weight_map = read_safetensors_index(index);
  TI_CHECK(!weight_map.empty(), "{} names no tensors. Fetch or write it again.", index.string());
  std::map<std::string, std::map<std::string, Location>> shards;
  for (const auto& [name, shard] : weight_map) {
    if (!shards.contains(shard)) {
      const std::filesystem::path path = index.parent_path() / shard;
      TI_CHECK(std::filesystem::exists(path), "{} names the file {}, which is not beside it. Fetch the missing file.",
               index.string(), printable(shard));
      files_.push_back(std::make_shared<File>(path));
      for (const SafetensorsEntry& entry : files_.back()->header.entries) {
        shards[shard][entry.name] = {files_.back(), &entry};
      }
    }
    const auto found = shards[shard].find(name);
    TI_CHECK(
        found != shards[shard].end(),
        "{} says that tensor \"{}\" lies in {}, but it does not. Index and file do not belong together: fetch both "
        "again.",
        index.string(), printable(name), printable(shard));
    tensors_[name] = found->second;
  }
}

std::vector<std::string> SafetensorsReader::names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, location] : tensors_) names.push_back(name);
  return names;
}

const SafetensorsReader::Location& SafetensorsReader::locate(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return found->second;
  const auto near = nearest_name(name, names());
  throw Error(fmt::format("{} has no tensor \"{}\"{}. Check that the weights are of this model.", path_, name,
                          near ? fmt::format(" (the nearest is \"{}\")", printable(*near)) : ""));
}

const SafetensorsEntry& SafetensorsReader::entry(const std::string& name) const { return *locate(name).entry; }

std::string SafetensorsReader::file_of(const std::string& name) const {
  return std::filesystem::path(locate(name).file->path).filename().string();
}

Tensor SafetensorsReader::tensor(const std::string& name) const {
  const auto& [file, entry] = locate(name);
  const auto options = at::TensorOptions(entry->dtype);
  if (entry->begin == entry->end) return at::empty(entry->shape, options);
  std::byte* data = file->memory.bytes().data() + file->header.data_offset + entry->begin;
  if (reinterpret_cast<uintptr_t>(data) % c10::elementSize(entry->dtype) != 0) {
    // The format does not promise alignment; torch needs it.
    Tensor aligned = at::empty(entry->shape, options);
    std::memcpy(aligned.mutable_data_ptr(), data, entry->end - entry->begin);
    return aligned;
  }
  return at::from_blob(data, entry->shape, [keep = file](void*) {}, options);
}

void SafetensorsReader::read_box(const std::string& name, const Box& box, const Tensor& destination) const {
  const auto& [file, entry] = locate(name);
  TI_ASSERT(lies_inside(box, entry->shape) && destination.sizes() == at::IntArrayRef(box.shape),
            "{} does not fit into the destination of {}", to_string(box), name);
  if (destination.numel() == 0) return;
  Shape strides(entry->shape.size(), 1);
  for (size_t dim = strides.size(); dim > 1; --dim) strides[dim - 2] = strides[dim - 1] * entry->shape[dim - 1];
  StoredTensor stored;
  stored.dtype = entry->dtype;
  stored.shape = entry->shape;
  stored.strides = strides;
  stored.data = file->memory.bytes().data() + file->header.data_offset + entry->begin;
  copy_stored(stored, box.offset, destination);
}

}  // namespace titanium::checkpoint
