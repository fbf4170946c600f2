#include "titanium/base/error.h"
#include "titanium/checkpoint/io/stretch_reader.h"
#include "titanium/checkpoint/safetensors/reader.h"
#include "titanium/checkpoint/sidecar.h"
#include "titanium/checkpoint/weights_source.h"

namespace titanium::checkpoint {
namespace {

constexpr std::string_view kRemedy =
    "Copy the folder again, or remove titanium.json if another program has written into it.";

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

  Verification verify() const override {
    const std::filesystem::path folder = path_, sidecar = folder / kSidecarFile;
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(sidecar, ignored)) return WeightsSource::verify();
    Verification found{.damage = {}, .checked = "and all bytes agree with the checksums of titanium.json"};
    const auto sums = parse_sidecar(MappedFile(sidecar, "checksums").bytes(), sidecar.string()).sums;
    std::set<std::string> files;
    for (const auto& [name, tensor] : tensors_) files.insert(tensor.pieces.front().file);
    for (const std::string& file : files) {
      if (sums.contains(file)) continue;
      found.damage.push_back(fmt::format("{} has no checksum for {}. {}", sidecar.string(), file, kRemedy));
    }
    std::vector<Stretch> stretches;
    for (const auto& [file, sum] : sums) {
      const auto size = std::filesystem::file_size(folder / file, ignored);
      if (ignored || size != sum.size) {
        found.damage.push_back(fmt::format("{} is missing or does not have the {} bytes that {} says. {}",
                                           (folder / file).string(), sum.size, kSidecarFile, kRemedy));
      } else {
        stretches.push_back({.file = file, .what = {}, .end = sum.size, .crc = {}, .use = {}});
      }
    }
    const StretchOptions options{.threads = 0, .keep_going = true, .stream = {}};
    for (const auto& problem : read_stretches(folder, stretches, sums, options))
      found.damage.push_back(problem.message);
    return found;
  }

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
