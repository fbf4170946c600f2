#include "titanium/models/encoders/frozen_weights.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "titanium/base/error.h"
#include "titanium/ops/init.h"

namespace titanium::models {

FrozenWeights read_frozen_weights(const std::filesystem::path& path, Dtype dtype, Device device,
                                  const std::string& prefix) {
  const std::shared_ptr<checkpoint::WeightsSource> source = checkpoint::open_weights(path);
  return [=](const std::string& name, const Shape& shape) {
    std::string found = name;
    if (!source->contains(found)) {
      found = name.starts_with(prefix) && !prefix.empty() ? name.substr(prefix.size()) : prefix + name;
    }
    TI_CHECK(source->contains(found),
             "{} has no tensor \"{}\". Use the weights that belong to the config.json beside "
             "them.",
             source->path(), name);
    const checkpoint::SourceTensor& tensor = source->tensor(found);
    TI_CHECK(tensor.shape == shape,
             "{}: {} is [{}], but [{}] by its config.json. Use weights and sizes that belong "
             "together.",
             source->path(), found, fmt::join(tensor.shape, ", "), fmt::join(shape, ", "));
    const Tensor weight = at::empty(shape, at::TensorOptions(dtype).device(device));
    source->read(found, whole_box(shape), weight);
    return weight;
  };
}

FrozenWeights random_frozen_weights(uint64_t seed, Dtype dtype, Device device) {
  return [=](const std::string& name, const Shape& shape) {
    Parameter parameter(name, shape);
    parameter.materialize(at::kFloat, at::kCPU);
    if (shape.size() == 1) {
      ops::init_constant(parameter, name.ends_with("bias") ? 0 : 1);
    } else {
      const int64_t inputs = volume(shape) / shape[0];
      ops::init_uniform(parameter, seed, std::sqrt(3 / static_cast<double>(inputs)));
    }
    return parameter.value.detach().to(device, dtype);
  };
}

FrozenWeights counted_frozen_weights(Dtype dtype, int64_t& bytes) {
  return [dtype, &bytes](const std::string&, const Shape& shape) {
    bytes += volume(shape) * static_cast<int64_t>(c10::elementSize(dtype));
    return at::empty(shape, at::TensorOptions(dtype).device(at::kMeta));
  };
}

}  // namespace titanium::models
