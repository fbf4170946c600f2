// Named tensors in a file or folder of any format: what loading, converting and inspecting need of it.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "titanium/checkpoint/dcp/metadata.h"
#include "titanium/checkpoint/torch_file/pickle_value.h"
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

  // Python values beside the tensors, of the formats that have them. `value` throws Error for an unknown name, or when
  // it cannot be read.
  virtual std::vector<std::string> values() const { return {}; }
  virtual PickleValue value(const std::string& name) const;
  // The way to a tensor or value through nested dicts and lists.
  virtual DcpPath path_to(const std::string& name) const { return {name}; }

  // What the writer noted about the run; empty for most formats.
  virtual std::map<std::string, std::string> facts() const { return {}; }

  // What a look at everything has found.
  struct Verification {
    std::vector<std::string> damage;  // a sentence for each thing that is missing, or has changed since it was written
    std::string checked;  // what that rests on, after "12 tensors, complete": "all bytes agree with their checksums"
  };
  virtual Verification verify() const;

 protected:
  explicit WeightsSource(const std::filesystem::path& path) : path_(path.string()) {}
  virtual void copy_box(const std::string& name, const Box& box, const Tensor& destination) const = 0;

  std::string path_;
  std::map<std::string, SourceTensor> tensors_;  // filled by the constructor
};

// One of these, by what `path` is. Throws UsageError when it is nothing of the kind, and what they throw.
std::unique_ptr<WeightsSource> open_weights(const std::filesystem::path& path);

// 16 hex digits that tell weights from others, without reading all of them: of the name, dtype and shape of every
// tensor and of its first, middle and last row. Where the weights lie and how they are dealt to files does not matter.
std::string fingerprint(const WeightsSource& source);

// A safetensors file, or a folder of them with an index. Throws as SafetensorsReader does.
std::unique_ptr<WeightsSource> open_safetensors(const std::filesystem::path& path);

// A folder of torch.distributed.checkpoint. Throws as DcpReader does.
std::unique_ptr<WeightsSource> open_dcp(const std::filesystem::path& folder);

// A file of torch.save with a dict of tensors and values. Nested dicts, and lists with tensors, get names as DCP gives
// them: keys and positions joined with dots. Throws Error when it is anything else, as TorchArchive does.
std::unique_ptr<WeightsSource> open_torch_file(const std::filesystem::path& path);

// A folder of Meta's Llama: consolidated.00.pth and so on, each a file of torch.save with one tensor-parallel rank's
// part of every tensor, under our names. Throws Error when files are missing or do not fit together.
std::unique_ptr<WeightsSource> open_meta_shards(const std::filesystem::path& folder);

}  // namespace titanium::checkpoint
