// The frozen autoencoder between images and latents, with the names of Black Forest Labs' ae.safetensors. Shapes:
// B images, H x W pixels, h x w = H/8 x W/8 elements of c channels for the usual sizes.
#pragma once

#include <memory>

#include "titanium/models/encoders/autoencoder_args.h"
#include "titanium/models/encoders/frozen_weights.h"

namespace titanium::models {

class Autoencoder {
 public:
  Autoencoder(const AutoencoderArgs& args, const FrozenWeights& weights);
  ~Autoencoder();

  // Latents of images [B, 3, H, W] with values from -1 to 1, sampled with `noise` [B, c, h, w], which is standard
  // normal. Height and width are multiples of the pixels of an element. Never records, as decode; both
  // compute in the dtype of the weights.
  Tensor encode(const Tensor& images_BCHW, const Tensor& noise_Bchw) const;
  Tensor decode(const Tensor& latents_Bchw) const;

  const AutoencoderArgs& args() const { return args_; }

 private:
  struct Networks;
  AutoencoderArgs args_;
  std::unique_ptr<const Networks> networks_;
};

}  // namespace titanium::models
