// Reads Hugging Face weights: one safetensors file, or a folder of them with an index.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "titanium/checkpoint/io/mapped_file.h"
#include "titanium/checkpoint/safetensors/header.h"
#include "titanium/tensor/parameter.h"

namespace titanium::checkpoint {

// The files of an index, model.safetensors.index.json: from tensor names to names of files beside it. Throws Error.
std::map<std::string, std::string> read_safetensors_index(const std::filesystem::path& index);

// The file or the index of a folder with weights: model.safetensors or model.safetensors.index.json, which diffusers
// calls diffusion_pytorch_model and a pipeline of it has in the folder transformer/.
std::optional<std::filesystem::path> find_safetensors(const std::filesystem::path& folder);

class SafetensorsReader {
 public:
  // `path` is a file, or a folder in which find_safetensors finds one, with its shards. Maps
  // the files and checks their headers; no tensor is read yet. Throws Error that names file, tensor and expectation.
  explicit SafetensorsReader(const std::filesystem::path& path);

  // Sorted.
  std::vector<std::string> names() const;
  bool contains(const std::string& name) const { return tensors_.contains(name); }
  // The metadata of the first file.
  const std::map<std::string, std::string>& metadata() const { return files_.front()->header.metadata; }

  // The others throw Error for an unknown name.
  const SafetensorsEntry& entry(const std::string& name) const;
  // The name of the tensor's file, without its folder.
  std::string file_of(const std::string& name) const;

  // The tensor on the CPU, as it lies in the file: pages are read when touched, and the file stays mapped as long as
  // the tensor lives. Writing to it does not change the file.
  Tensor tensor(const std::string& name) const;

  // Copies a box of the tensor, which must lie inside, into `destination`, which has the box's shape, any strides,
  // dtype and device. Touches only the bytes of the box.
  void read_box(const std::string& name, const Box& box, const Tensor& destination) const;

 private:
  struct File {
    explicit File(const std::filesystem::path& path);
    std::string path;
    MappedFile memory;
    SafetensorsHeader header;
  };
  struct Location {
    std::shared_ptr<const File> file;
    const SafetensorsEntry* entry;
  };
  void open_file(const std::filesystem::path& path);
  void open_index(const std::filesystem::path& index);
  const Location& locate(const std::string& name) const;

  std::string path_;
  std::vector<std::shared_ptr<const File>> files_;
  std::map<std::string, Location> tensors_;
};

}  // namespace titanium::checkpoint
