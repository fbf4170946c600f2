#include "titanium/checkpoint/dcp/reader.h"
#include "titanium/checkpoint/weights_source.h"

namespace titanium::checkpoint {
namespace {

class DcpSource : public WeightsSource {
 public:
  explicit DcpSource(const std::filesystem::path& folder) : WeightsSource(folder), reader_(folder) {
    const DcpMetadata& metadata = reader_.metadata();
    for (const auto& [name, entry] : metadata.entries) {
      const auto* tensor = std::get_if<DcpTensor>(&entry);
      if (tensor == nullptr) continue;
      SourceTensor& found = tensors_[name] = {tensor->dtype, tensor->shape, {}};
      for (const Box& chunk : tensor->chunks) {
        const auto location = metadata.locations.find({name, chunk.offset});
        found.pieces.push_back({chunk, location == metadata.locations.end() ? "" : location->second.file});
      }
    }
  }

  std::string_view format() const override { return "distributed checkpoint"; }

  std::vector<std::string> values() const override {
    std::vector<std::string> names;
    for (const auto& [name, entry] : reader_.metadata().entries) {
      if (std::holds_alternative<DcpObject>(entry)) names.push_back(name);
    }
    return names;
  }
  PickleValue value(const std::string& name) const override { return reader_.read_object(name); }
  DcpPath path_to(const std::string& name) const override {
    const auto found = reader_.metadata().paths.find(name);
    return found == reader_.metadata().paths.end() ? DcpPath{name} : found->second;
  }
  std::map<std::string, std::string> facts() const override { return reader_.facts(); }
  Verification verify() const override {
    Verification found{.damage = {},
                       .checked = reader_.has_sums()
                                      ? "and all bytes agree with the checksums of titanium.json"
                                      : "and tensors and values agree with the checksums that torch wrote with them; "
                                        "there are none for the rest of the files (no titanium.json)"};
    for (const FileProblem& problem : reader_.verify()) found.damage.push_back(problem.message);
    return found;
  }

 private:
  void copy_box(const std::string& name, const Box& box, const Tensor& destination) const override {
    reader_.read_box(name, tensors_.at(name).shape, box, destination);
  }

  DcpReader reader_;
};

}  // namespace

std::unique_ptr<WeightsSource> open_dcp(const std::filesystem::path& folder) {
  return std::make_unique<DcpSource>(folder);
}

}  // namespace titanium::checkpoint
