#include "titanium/train/task/image_encoders.h"

#include "titanium/base/bundled.h"
#include "titanium/base/error.h"
#include "titanium/base/log.h"
#include "titanium/checkpoint/safetensors/reader.h"
#include "titanium/data/fetchable.h"
#include "titanium/parallel/placement.h"
#include "titanium/remote/reading/local_copy.h"
#include "titanium/train/train_state.h"

namespace titanium::train {
namespace {

using MakeEncoder = std::function<std::unique_ptr<models::TextEncoder>(const models::EncoderConfig& config,
                                                                       const models::FrozenWeights& weights)>;

struct Wanted {
  const char* option;
  std::string name;
  const char* prefix;  // that published weights may have before their names
  MakeEncoder make;
  int64_t width;
};

Wanted wanted_text(const JobConfig& config, const models::ImageModel& model, const models::KeepFrozen& keep) {
  return {
      .option = "encoder.t5_encoder",
      .name = config.encoder.t5_encoder,
      .prefix = "",
      .make = [keep](const auto& sizes, const auto& weights) { return models::make_t5_encoder(sizes, weights, keep); },
      .width = model.text_width()};
}

Wanted wanted_pooled(const JobConfig& config, const models::ImageModel& model) {
  return {.option = "encoder.clip_encoder",
          .name = config.encoder.clip_encoder,
          .prefix = "text_model.",
          .make = models::make_clip_encoder,
          .width = model.pooled_width()};
}

void check_width(const Wanted& wanted, const models::TextEncoder& encoder) {
  if (encoder.width() == wanted.width) return;
  throw UsageError(
      fmt::format("{} = \"{}\" gives {} columns, but the model takes {}. Use the encoder that belongs to "
                  "the model.",
                  wanted.option, wanted.name, encoder.width(), wanted.width));
}

std::unique_ptr<models::TextEncoder> load_encoder(const JobConfig& config, const Wanted& wanted, Dtype dtype,
                                                  Device device) {
  const bool made_up = config.training.test_mode;
  const std::filesystem::path folder = encoder_folder(wanted.name, !made_up);
  const auto weights = made_up ? models::random_frozen_weights(weight_seed(config.debug), dtype, device)
                               : models::read_frozen_weights(folder, dtype, device, wanted.prefix);
  auto encoder = wanted.make(models::read_encoder_config(folder / "config.json"), weights);
  check_width(wanted, *encoder);
  return encoder;
}

void load_caption_encoders(const JobConfig& config, const models::ImageModel& model, Device device,
                           const parallel::Mesh* mesh, ImageEncoders& encoders) {
  const Device place = config.encoder.on_cpu ? Device(at::kCPU) : device;
  auto keep = models::keep_whole();
  if (config.encoder.sharded && mesh != nullptr) {
    const std::string_view axis = parallel::axes_of_view(RankView::kDense, mesh->dims()).shard;
    if (mesh->size(axis) > 1) keep = models::keep_shards(mesh->group(axis));
  }
  encoders.text = load_encoder(config, wanted_text(config, model, keep), model.compute_dtype, place);
  encoders.pooled = load_encoder(config, wanted_pooled(config, model), model.compute_dtype, place);
}

void load_autoencoder(const JobConfig& config, const models::ImageModel& model, Device device,
                      ImageEncoders& encoders) {
  check_autoencoder(config);
  encoders.autoencoder = std::make_unique<models::Autoencoder>(
      model.autoencoder(),
      config.training.test_mode
          ? models::random_frozen_weights(weight_seed(config.debug), model.compute_dtype, device)
          : models::read_frozen_weights(config.encoder.autoencoder_path, model.compute_dtype, device));
}

void log_encoders(const JobConfig& config, const models::ImageModel& model, const char* which) {
  log_info("Loaded {} {} in {}", config.training.test_mode ? "made-up" : "published", which,
           dtype_name(model.compute_dtype));
}

// The config.json of an encoder that is here, or whose sizes are known.
std::optional<models::EncoderConfig> find_sizes(const std::string& name) {
  if (is_encoder_here(name)) return models::read_encoder_config(bundled(name) / "config.json");
  auto known = models::published_encoder_config(name);
  if (!known)
    log_warning("The sizes of {} are not known before it is fetched: the memory plan does not count it", name);
  return known;
}

int64_t weight_bytes(const Wanted& wanted, Dtype dtype) {
  const auto sizes = find_sizes(wanted.name);
  if (!sizes) return 0;
  int64_t bytes = 0;
  wanted.make(*sizes, models::counted_frozen_weights(dtype, bytes));
  return bytes;
}

}  // namespace

bool draws_images(const config::Validation& validation) { return validation.enable && validation.save_img_count != 0; }

bool is_encoder_here(const std::string& name) {
  if (std::filesystem::exists(bundled(name))) return true;
  if (std::ranges::count(name, '/') == 1 && !name.starts_with('/') && !name.starts_with('.')) return false;
  throw UsageError(fmt::format(
      "{} is neither a folder nor the name of a model at Hugging Face (owner/name). Use one of these.", name));
}

std::filesystem::path encoder_folder(const std::string& name, bool with_weights) {
  if (is_encoder_here(name)) return bundled(name);
  const auto fetched = [&](std::string_view weights) {
    return remote::local_copy("hf://" + name, [=](const std::string& file) {
      return file.ends_with(weights) ? with_weights
                                     : file.ends_with(".json") || file.ends_with(".txt") || file.ends_with(".model");
    });
  };
  const std::filesystem::path folder = fetched(".safetensors");
  // Those of T5 are published by torch.save alone.
  return !with_weights || checkpoint::find_safetensors(folder) ? folder : fetched("pytorch_model.bin");
}

void check_autoencoder(const JobConfig& config) {
  const std::string& path = config.encoder.autoencoder_path;
  if (config.training.test_mode || std::filesystem::exists(path)) return;
  throw UsageError(
      fmt::format("encoder.autoencoder_path = \"{}\" does not exist. Set training.test_mode = true for a test without "
                  "it, or fetch it with: {}",
                  path, data::download_of_file(path)));
}

ImageEncoders load_image_encoders(const JobConfig& config, const models::ImageModel& model, Device device,
                                  const parallel::Mesh* mesh) {
  ImageEncoders encoders;
  load_caption_encoders(config, model, device, mesh, encoders);
  load_autoencoder(config, model, device, encoders);
  log_encoders(config, model, "encoders of captions and images");
  return encoders;
}

ImageEncoders load_encoders_of_run(const JobConfig& config, const models::ImageModel& model, Device device,
                                   const parallel::Mesh& mesh) {
  if (!config.encoder.offline) return load_image_encoders(config, model, device, &mesh);
  ImageEncoders encoders;
  if (!draws_images(config.validation)) return encoders;
  load_autoencoder(config, model, device, encoders);
  log_encoders(config, model, "autoencoder, to draw images");
  return encoders;
}

FrozenMemory image_encoder_memory(const JobConfig& config, const models::ImageModel& model,
                                  const parallel::ParallelDims& dims) {
  const Dtype dtype = model.compute_dtype;
  const auto element = static_cast<int64_t>(c10::elementSize(dtype));
  const models::AutoencoderArgs& args = model.autoencoder();
  FrozenMemory memory;
  // A residual block at full resolution holds its input, and input and output of one operator.
  const auto at_full_size = [&](int64_t channels, int64_t images) {
    return 3 * channels * images * config.training.img_size * config.training.img_size * element;
  };
  const bool draws = draws_images(config.validation);
  if (!config.encoder.offline || draws)
    models::Autoencoder(args, models::counted_frozen_weights(dtype, memory.weights));
  if (draws) {
    const int64_t next = args.multipliers.size() > 1 ? args.multipliers[1] : args.multipliers[0];
    memory.working =
        at_full_size(args.channels * std::max(next, args.multipliers[0]), config.validation.local_batch_size);
  }
  if (config.encoder.offline) return memory;
  memory.working =
      std::max(memory.working, at_full_size(args.channels * args.multipliers[0], config.training.local_batch_size));
  int64_t grouped = 0, largest = 0;
  const auto count_group = [&](const std::vector<Tensor>& weights) -> models::FrozenGroup {
    int64_t bytes = 0;
    for (const Tensor& weight : weights) bytes += static_cast<int64_t>(weight.nbytes());
    grouped += bytes;
    largest = std::max(largest, bytes);
    return {};
  };
  int64_t& place = config.encoder.on_cpu ? memory.on_host : memory.weights;
  place +=
      weight_bytes(wanted_text(config, model, count_group), dtype) + weight_bytes(wanted_pooled(config, model), dtype);
  if (config.encoder.on_cpu || !config.encoder.sharded || dims.fsdp() == 1) return memory;
  memory.weights -= grouped - (grouped + dims.fsdp() - 1) / dims.fsdp();
  memory.working += 2 * largest;
  return memory;
}

}  // namespace titanium::train
