// What training and drawing of Flux compute, for parity/flux_training.py.
//
//   flux_training_driver noise NAME SEED COLUMNS OUT NUMBERS...    OUT: noise [n, columns] and times [n] of these
//   samples flux_training_driver pack IN OUT                               IN: latents [B, c, 2 h, 2 w]; OUT: packed,
//   unpacked flux_training_driver draw PIPELINE IN OUT PIXELS STEPS SEED GUIDANCE|none NUMBERS...
//       IN: text [n, L, C], pooled [n, Y], empty_text [1, L, C], empty_pooled [1, Y]; OUT: images [n, 3, H, W]
#include <ATen/ops/tensor.h>

#include <iostream>

#include "titanium/checkpoint/safetensors/reader.h"
#include "titanium/checkpoint/safetensors/writer.h"
#include "titanium/kernels/counter_random.h"
#include "titanium/models/model_weights.h"
#include "titanium/models/registry.h"
#include "titanium/ops/counter_normal.h"
#include "titanium/ops/init.h"
#include "titanium/train/inference/draw_images.h"

namespace titanium::train {
namespace {

using checkpoint::NamedTensor;

std::vector<int64_t> numbers_from(const std::vector<std::string>& arguments, size_t first) {
  std::vector<int64_t> numbers;
  for (size_t i = first; i < arguments.size(); ++i) numbers.push_back(std::stoll(arguments[i]));
  return numbers;
}

void write_noise(const std::vector<std::string>& arguments) {
  const uint64_t seed = std::stoull(arguments.at(2));
  const std::vector<int64_t> numbers = numbers_from(arguments, 5);
  const Tensor noise =
      ops::counter_normal(ops::parameter_key(arguments.at(1), seed), numbers, std::stoll(arguments.at(3)), at::kCPU);
  std::vector<float> times;
  for (const int64_t number : numbers) {
    const uint64_t key = ops::parameter_key("flow.times", seed);
    times.push_back(static_cast<float>(kernels::random_uniform(key, static_cast<uint64_t>(number))));
  }
  const std::vector<NamedTensor> results = {{"noise", noise}, {"times", at::tensor(times, at::kFloat)}};
  checkpoint::write_safetensors(arguments.at(4), results);
}

void write_packed(const std::vector<std::string>& arguments) {
  const Tensor latents = checkpoint::SafetensorsReader(arguments.at(1)).tensor("latents");
  const Tensor packed = models::pack_latents(latents);
  const Tensor unpacked = models::unpack_latents(packed, latents.size(2) / 2, latents.size(3) / 2);
  const std::vector<NamedTensor> results = {{"packed", packed.contiguous()}, {"unpacked", unpacked.contiguous()}};
  checkpoint::write_safetensors(arguments.at(2), results);
}

void write_drawn(const std::vector<std::string>& arguments) {
  const std::filesystem::path pipeline = arguments.at(1);
  JobConfig config;
  config.model.name = "flux";
  config.model.flavor = "auto";
  config.model.hf_assets_path = pipeline.string();
  const auto built = models::build_model(config, std::nullopt);
  models::ImageModel& model = models::as_image_model(*built);
  model.materialize(at::kFloat, at::kCPU);
  model.build_buffers(at::kCPU);
  models::load_hugging_face_weights(model, pipeline / "transformer", false);
  const models::Autoencoder autoencoder(model.autoencoder(),
                                        models::read_frozen_weights(pipeline / "ae.safetensors", at::kFloat, at::kCPU));
  const checkpoint::SafetensorsReader in(arguments.at(2));
  DrawOptions options{.pixels = std::stoll(arguments.at(4)),
                      .steps = std::stoll(arguments.at(5)),
                      .guidance = {},
                      .seed = std::stoull(arguments.at(6))};
  if (arguments.at(7) != "none") options.guidance = std::stod(arguments.at(7));
  const DrawnCaptions captions{{in.tensor("text"), in.tensor("pooled")},
                               {in.tensor("empty_text"), in.tensor("empty_pooled")},
                               numbers_from(arguments, 8)};
  const Tensor images = draw_images(model, autoencoder, captions, options, at::kCPU);
  const std::vector<NamedTensor> results = {{"images", images.contiguous()}};
  checkpoint::write_safetensors(arguments.at(3), results);
}

int run(const std::vector<std::string>& arguments) {
  const std::string command = arguments.empty() ? "" : arguments[0];
  if (command == "noise") {
    write_noise(arguments);
  } else if (command == "pack") {
    write_packed(arguments);
  } else if (command == "draw") {
    write_drawn(arguments);
  } else {
    std::cerr << "usage: see the head of flux_training_driver.cpp\n";
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace titanium::train

int main(int argc, char** argv) { return titanium::train::run({argv + 1, argv + argc}); }
