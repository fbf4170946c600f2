#include "titanium/train/task/image_encoders.h"

#include "titanium/base/error.h"
#include "titanium/base/log.h"
#include "titanium/data/fetchable.h"
#include "titanium/remote/local_copy.h"
#include "titanium/train/train_state.h"

namespace titanium::train {
namespace {

using MakeEncoder = std::unique_ptr<models::TextEncoder> (*)(const std::filesystem::path& config,
                                                             const models::FrozenWeights& weights);

struct Wanted {
  const char* option;
  std::string name;
  const char* prefix;  // that published weights may have before their names
  MakeEncoder make;
  int64_t width;
};

std::unique_ptr<models::TextEncoder> load_encoder(const JobConfig& config, const Wanted& wanted, Dtype dtype,
                                                  Device device) {
  const bool made_up = config.training.test_mode;
  const std::filesystem::path folder = encoder_folder(wanted.name, !made_up);
  const auto weights = made_up ? models::random_frozen_weights(weight_seed(config.debug), dtype, device)
                               : models::read_frozen_weights(folder, dtype, device, wanted.prefix);
  auto encoder = wanted.make(folder / "config.json", weights);
  if (encoder->width() != wanted.width) {
    throw UsageError(
        fmt::format("{} = \"{}\" gives {} columns, but the model takes {}. Use the encoder that belongs to "
                    "the model.",
                    wanted.option, wanted.name, encoder->width(), wanted.width));
  }
  return encoder;
}

}  // namespace

bool is_encoder_here(const std::string& name) {
  if (std::filesystem::exists(name)) return true;
  if (std::ranges::count(name, '/') == 1 && !name.starts_with('/') && !name.starts_with('.')) return false;
  throw UsageError(fmt::format(
      "{} is neither a folder nor the name of a model at Hugging Face (owner/name). Use one of these.", name));
}

std::filesystem::path encoder_folder(const std::string& name, bool with_weights) {
  if (is_encoder_here(name)) return name;
  return remote::local_copy("hf://" + name, [=](const std::string& file) {
    const bool is_weights = file.ends_with(".safetensors");
    return is_weights ? with_weights : file.ends_with(".json") || file.ends_with(".txt") || file.ends_with(".model");
  });
}

void check_autoencoder(const JobConfig& config) {
  const std::string& path = config.encoder.autoencoder_path;
  if (config.training.test_mode || std::filesystem::exists(path)) return;
  throw UsageError(
      fmt::format("encoder.autoencoder_path = \"{}\" does not exist. Set training.test_mode = true for a test without "
                  "it, or fetch it with: {}",
                  path, data::download_of_file(path)));
}

ImageEncoders load_image_encoders(const JobConfig& config, const models::ImageModel& model, Device device) {
  const Dtype dtype = model.compute_dtype;
  const config::Encoder& options = config.encoder;
  ImageEncoders encoders;
  encoders.text = load_encoder(config,
                               {.option = "encoder.t5_encoder",
                                .name = options.t5_encoder,
                                .prefix = "",
                                .make = models::make_t5_encoder,
                                .width = model.text_width()},
                               dtype, device);
  encoders.pooled = load_encoder(config,
                                 {.option = "encoder.clip_encoder",
                                  .name = options.clip_encoder,
                                  .prefix = "text_model.",
                                  .make = models::make_clip_encoder,
                                  .width = model.pooled_width()},
                                 dtype, device);
  check_autoencoder(config);
  encoders.autoencoder = std::make_unique<models::Autoencoder>(
      model.autoencoder(), config.training.test_mode
                               ? models::random_frozen_weights(weight_seed(config.debug), dtype, device)
                               : models::read_frozen_weights(options.autoencoder_path, dtype, device));
  log_info("Loaded {} encoders of captions and images in {}", config.training.test_mode ? "made-up" : "published",
           dtype_name(dtype));
  return encoders;
}

}  // namespace titanium::train
