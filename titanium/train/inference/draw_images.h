// Images out of noise, by Euler steps along the velocity that an image model predicts.
#pragma once

#include <filesystem>
#include <optional>

#include "titanium/models/image_model.h"
#include "titanium/observe/shown_image.h"
#include "titanium/parallel/mesh.h"
#include "titanium/train/task/encode_images.h"

namespace titanium::train {

struct DrawOptions {
  int64_t pixels = 256;            // of a side
  int64_t steps = 50;              // of Euler
  std::optional<double> guidance;  // the velocity is that of no caption + guidance * the difference to it; or none
  uint64_t seed = 0;
};

// `steps` + 1 times from 1 to 0, shifted towards noise, the more so the more patches an image has: t becomes
// e^m / (e^m + 1/t - 1), where m goes in a straight line from 0.5 at 256 patches to 1.15 at 4096.
std::vector<double> flow_times(int64_t steps, int64_t patches);

struct DrawnCaptions {
  EncodedCaptions captions;      // n of them
  EncodedCaptions empty;         // of one empty caption; only guidance needs it
  std::vector<int64_t> numbers;  // [n]; the noise of an image is a function of the seed and its number
};

// Images [n, 3, pixels, pixels] with values from -1 to 1, in fp32. Not recorded for autograd. On all ranks of a layout
// together, which give the same captions and get the same images; without a mesh on one.
Tensor draw_images(models::ImageModel& model, const models::Autoencoder& autoencoder, const DrawnCaptions& captions,
                   const DrawOptions& options, Device device, const parallel::Mesh* mesh = nullptr,
                   const ops::SequenceShare& share = {});

// Writes an image [3, H, W] as PNG, with its caption as a text inside, and returns what it has written. Makes the
// folder. Throws Error when it cannot be written.
observe::ShownImage write_image(const std::filesystem::path& path, const Tensor& image_3HW, const std::string& caption);

}  // namespace titanium::train
