// A model that draws images: a rectified flow in the latent space of an autoencoder, guided by encoded texts. Between
// an image x and noise e lies z = (1 - t) x + t e; the model predicts the velocity e - x from z, the time t and the
// text. Shapes: B samples, S patches of an image, P elements of a patch, L tokens of a text, C columns of their
// encoding, Y columns of the pooled encoding.
#pragma once

#include "titanium/models/encoders/autoencoder_args.h"
#include "titanium/models/model.h"

namespace titanium::models {

// With context parallelism, latents and text have this rank's rows of each (ops/sequence_share.h).
struct ImageBatch {
  Tensor latents_BSP;  // noisy; patches in the order of rows of the image
  Tensor text_BLC;
  Tensor pooled_BY;
  Tensor times_B;         // fp32, in [0, 1]
  int64_t rows, columns;  // patches of the whole image
  int64_t text_tokens;    // of the whole text
};

class ImageModel : public Model {
 public:
  // The velocity of the latents, [B, S, P] in the compute dtype. Weights get gradients although nothing in the batch
  // needs one.
  virtual Tensor velocity(const ImageBatch& batch) = 0;

  virtual int64_t text_width() const = 0;    // C
  virtual int64_t pooled_width() const = 0;  // Y
  virtual const AutoencoderArgs& autoencoder() const = 0;
  // Pixels on a side of a patch: two elements of the latents.
  int64_t patch_pixels() const { return 2 * autoencoder().pixels(); }
};

// Throw UsageError if the model is of another kind.
ImageModel& as_image_model(Model& model);
const ImageModel& as_image_model(const Model& model);

// Patches of 2 x 2: latents [B, c, 2h, 2w] become [B, h * w, 4 c], and back.
Tensor pack_latents(const Tensor& latents_BcHW);
Tensor unpack_latents(const Tensor& latents_BSP, int64_t rows, int64_t columns);

}  // namespace titanium::models
