#include "titanium/checkpoint/weights_source.h"

#include "titanium/base/error.h"
#include "titanium/base/nearest_name.h"
#include "titanium/checkpoint/boxes.h"
#include "titanium/checkpoint/torch_dtype.h"

namespace titanium::checkpoint {

const SourceTensor& WeightsSource::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, tensor] : tensors_) names.push_back(known);
  const auto near = nearest_name(name, names);
  throw Error(fmt::format("{} has no tensor \"{}\"{}. Check the name, and that the weights are of this model.", path_,
                          name, near ? fmt::format(" (the nearest is \"{}\")", *near) : ""));
}

void WeightsSource::read(const std::string& name, const Box& box, const Tensor& destination) const {
  const SourceTensor& found = tensor(name);
  const Dtype wanted = destination.scalar_type();
  TI_CHECK(found.dtype == wanted || (c10::isFloatingType(found.dtype) && c10::isFloatingType(wanted)),
           "{}: \"{}\" has dtype {}, but {} is expected. Check that the weights are of this model.", path_, name,
           torch_dtype(found.dtype).name, torch_dtype(wanted).name);
  TI_ASSERT(lies_inside(box, found.shape) && destination.sizes() == at::IntArrayRef(box.shape),
            "{} does not fit into the destination of {}", to_string(box), name);
  if (destination.numel() > 0) copy_box(name, box, destination);
}

}  // namespace titanium::checkpoint
