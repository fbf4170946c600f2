// Sizes of the autoencoder between images and latents.
#pragma once

#include <cstdint>
#include <vector>

namespace titanium::models {

struct AutoencoderArgs {
  int64_t image_channels = 3;
  int64_t channels = 128;                           // of the widest resolution, times the entries below
  std::vector<int64_t> multipliers = {1, 2, 4, 4};  // one per resolution; each is half of the one before
  int64_t residual_blocks = 2;                      // per resolution
  int64_t latent_channels = 16;
  int64_t groups = 32;    // of the group norms
  double scale = 0.3611;  // latents are scale * (z - shift)
  double shift = 0.1159;

  // How many pixels wide an element of the latents is.
  int64_t pixels() const { return int64_t{1} << (multipliers.size() - 1); }
};

}  // namespace titanium::models
