#include "titanium/checkpoint/safetensors_reader.h"
#include "titanium/checkpoint/weights_source.h"

namespace titanium::checkpoint {
namespace {

class SafetensorsSource : public WeightsSource {
 public:
  explicit SafetensorsSource(const std::filesystem::path& path) : WeightsSource(path), reader_(path) {
    for (const std::string& name : reader_.names()) {
      const SafetensorsEntry& entry = reader_.entry(name);
      const Box whole{Shape(entry.shape.size(), 0), entry.shape};
      tensors_[name] = {entry.dtype, entry.shape, {{whole, reader_.file_of(name)}}};
    }
  }

  std::string_view format() const override { return "Hugging Face weights"; }

 private:
  void copy_box(const std::string& name, const Box& box, const Tensor& destination) const override {
    reader_.read_box(name, box, destination);
  }

  SafetensorsReader reader_;
};

}  // namespace

std::unique_ptr<WeightsSource> open_safetensors(const std::filesystem::path& path) {
  return std::make_unique<SafetensorsSource>(path);
}

}  // namespace titanium::checkpoint
