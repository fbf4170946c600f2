// Named tensors in a file or folder of any format: what loading, converting and inspecting need of it.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "titanium/tensor/parameter.h"

namespace titanium::checkpoint {

// A tensor of a source, and where its parts lie.
struct SourceTensor {
  struct Piece {
    Box box;
    std::string file;
  };
  Dtype dtype = Dtype::Undefined;
  Shape shape;
  std::vector<Piece> pieces;

  uint64_t bytes() const { return static_cast<uint64_t>(volume(shape)) * c10::elementSize(dtype); }
};

// Opening reads what describes the tensors; their bytes are read when they are asked for. Several threads may read at
// the same time.
class WeightsSource {
 public:
  virtual ~WeightsSource() = default;

  virtual std::string_view format() const = 0;  // "Hugging Face weights"
  const std::string& path() const { return path_; }
  const std::map<std::string, SourceTensor>& tensors() const { return tensors_; }
  bool contains(const std::string& name) const { return tensors_.contains(name); }

  // Throws Error for an unknown name.
  const SourceTensor& tensor(const std::string& name) const;

  // Copies a box of the tensor into `destination`, of the box's shape and of any strides and device. Reads only the
  // bytes of the box. Floating-point numbers are converted to the destination's dtype; other dtypes must be the same.
  // Throws Error for an unknown name, another dtype, or bytes that are missing or damaged.
  void read(const std::string& name, const Box& box, const Tensor& destination) const;

 protected:
  explicit WeightsSource(const std::filesystem::path& path) : path_(path.string()) {}
  virtual void copy_box(const std::string& name, const Box& box, const Tensor& destination) const = 0;

  std::string path_;
  std::map<std::string, SourceTensor> tensors_;  // filled by the constructor
};

// A safetensors file, or a folder of them with an index. Throws as SafetensorsReader does.
std::unique_ptr<WeightsSource> open_safetensors(const std::filesystem::path& path);

}  // namespace titanium::checkpoint
