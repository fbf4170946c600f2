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
  // normal. Height and width are multiples of the pixels of an element. Neither this nor decode records for autograd;
  // both compute in the dtype of the weights.
  Tensor encode(const Tensor& images_BCHW, const Tensor& noise_Bchw) const;
  // The two halves of it: mean and logarithm of the variance, [B, 2 c, h, w], and the latents that noise makes of them.
  Tensor moments(const Tensor& images_BCHW) const;
  static Tensor sampled(const Tensor& moments_Bmhw, const Tensor& noise_Bchw, const AutoencoderArgs& args);
  Tensor decode(const Tensor& latents_Bchw) const;

  const AutoencoderArgs& args() const { return args_; }

 private:
  struct Networks;
  AutoencoderArgs args_;
  std::unique_ptr<const Networks> networks_;
};

}  // namespace titanium::models
