#include "titanium/models/image_model.h"

#include "titanium/base/error.h"

namespace titanium::models {

const ImageModel& as_image_model(const Model& model) {
  const auto* const found = dynamic_cast<const ImageModel*>(&model);
  if (found == nullptr) {
    throw UsageError(
        "this model does not draw images, as training on them and generating them need. Use an image "
        "model.");
  }
  return *found;
}

ImageModel& as_image_model(Model& model) {
  return const_cast<ImageModel&>(as_image_model(static_cast<const Model&>(model)));
}

Tensor pack_latents(const Tensor& latents_BcHW) {
  return latents_BcHW.unflatten(2, {-1, 2}).unflatten(4, {-1, 2}).permute({0, 2, 4, 1, 3, 5}).flatten(3).flatten(1, 2);
}

Tensor unpack_latents(const Tensor& latents_BSP, int64_t rows, int64_t columns) {
  return latents_BSP.unflatten(2, {-1, 2, 2})
      .unflatten(1, {rows, columns})
      .permute({0, 3, 1, 4, 2, 5})
      .flatten(4, 5)
      .flatten(2, 3);
}

}  // namespace titanium::models
