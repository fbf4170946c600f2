// titanium generate-image: draws images for prompts with a checkpoint.
#include <cmath>
#include <cstdio>
#include <sstream>

#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/cli/command_line.h"
#include "titanium/train/inference/draw_images.h"
#include "titanium/train/inference/load_model.h"
#include "titanium/train/task/image_data.h"
#include "titanium/train/train_state.h"

namespace titanium::cli {
namespace {

struct Options {
  std::string checkpoint, prompts, out;
  int64_t steps = 0, batch = 0, pixels = 0;
  uint64_t seed = 0;
  double guidance = 0;
};

// What the command line leaves open, the configuration says.
Options defaults_of(const JobConfig& config) {
  const config::Validation& validation = config.validation;
  const config::Inference& inference = config.inference;
  return {.checkpoint = "",
          .prompts = inference.prompts_path,
          .out = (std::filesystem::path(config.job.dump_folder) / inference.save_img_folder).string(),
          .steps = validation.denoising_steps,
          .batch = inference.local_batch_size,
          .pixels = inference.img_size,
          .seed = train::weight_seed(config.debug),
          .guidance = validation.enable_classifier_free_guidance ? validation.classifier_free_guidance_scale : 0};
}

void require(bool good, const char* name, auto value, const std::string& expectation) {
  if (!good) throw UsageError(fmt::format("generate-image: --{} {} should be {}.", name, value, expectation));
}

void check(const Options& options) {
  require(options.steps >= 1, "steps", options.steps, "at least 1");
  require(options.batch >= 1, "batch", options.batch, "at least 1");
  require(std::isfinite(options.guidance) && options.guidance >= 0, "guidance", options.guidance,
          "a number from 0 (none) upwards");
}

// One prompt per line; empty lines are passed over.
std::vector<std::string> read_prompts(const std::string& file) {
  std::istringstream lines(read_file(file, "file of prompts"));
  std::vector<std::string> prompts;
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) prompts.push_back(line);
  }
  if (prompts.empty()) throw UsageError(fmt::format("{} holds no prompts. Write one on each line.", file));
  return prompts;
}

// Tokens of captions, for each encoder.
std::vector<std::vector<int32_t>> tokens_of(const std::vector<data::CaptionEncoder>& encoders,
                                            std::span<const std::string> captions) {
  std::vector<std::vector<int32_t>> all;
  for (const data::CaptionEncoder& encoder : encoders) {
    std::vector<int32_t>& tokens = all.emplace_back();
    for (const std::string& caption : captions) {
      const std::vector<int32_t> ids = encoder(caption);
      tokens.insert(tokens.end(), ids.begin(), ids.end());
    }
  }
  return all;
}

void generate(const train::CheckpointRun& run, const Options& options, Device device) {
  const auto loaded = train::load_any_model(run, device);
  models::ImageModel& model = models::as_image_model(*loaded);
  const int64_t patch = model.patch_pixels();
  require(options.pixels >= patch && options.pixels % patch == 0, "size", options.pixels,
          fmt::format("a multiple of {}", patch));
  const std::vector<std::string> prompts = read_prompts(options.prompts);
  const auto captions = train::caption_encoders(run.config);
  const train::ImageEncoders encoders = train::load_image_encoders(run.config, model, device);
  train::DrawOptions draw{.pixels = options.pixels, .steps = options.steps, .guidance = {}, .seed = options.seed};
  if (options.guidance > 0) draw.guidance = options.guidance;
  const auto encode = [&](std::span<const std::string> texts) {
    return train::encode_captions(encoders, tokens_of(captions, texts), std::ssize(texts), device);
  };
  const std::string nothing;
  const train::EncodedCaptions empty = encode({&nothing, 1});
  for (size_t first = 0; first < prompts.size(); first += static_cast<size_t>(options.batch)) {
    const size_t count = std::min(static_cast<size_t>(options.batch), prompts.size() - first);
    train::DrawnCaptions drawn{
        .captions = encode(std::span(prompts).subspan(first, count)), .empty = empty, .numbers = {}};
    for (size_t i = first; i < first + count; ++i) drawn.numbers.push_back(static_cast<int64_t>(i));
    const Tensor images = train::draw_images(model, *encoders.autoencoder, drawn, draw, device);
    for (size_t i = 0; i < count; ++i) {
      const auto path = std::filesystem::path(options.out) / fmt::format("image_prompt{}.png", first + i);
      train::write_image(path, images[static_cast<int64_t>(i)], prompts[first + i]);
      fmt::print("{}: {}\n", path.string(), prompts[first + i]);
    }
  }
}

}  // namespace

int run_generate_image(Arguments args) {
  Options given;
  CommandLine app(
      "Draws an image for each line of a file with the model of a checkpoint, and writes them as PNG. All options of\n"
      "titanium train are taken too: those of [encoder] name the encoders of texts and the autoencoder. On a\n"
      "GPU weights, encoders and computation are in the precision of training (--training.mixed_precision_param, by\n"
      "default bfloat16), on a CPU in float32 unless that option is given.",
      "generate-image");
  app.take_run_options();
  app.option("--checkpoint", given.checkpoint, "Distributed checkpoint, safetensors or torch.save file").required();
  const auto prompts = app.option("--prompts", given.prompts, "One prompt per line; else inference.prompts_path");
  const auto out = app.option("--out", given.out, "Folder; else inference.save_img_folder in job.dump_folder");
  const auto steps = app.option("--steps", given.steps, "From noise to image; else validation.denoising_steps");
  const auto guidance = app.option("--guidance", given.guidance,
                                   "Strength of classifier-free guidance, 0: none; else what [validation] says");
  const auto seed = app.option("--seed", given.seed, "The same seed gives the same images; else debug.seed");
  const auto batch = app.option("--batch", given.batch, "Prompts at once; else inference.local_batch_size");
  const auto size = app.option("--size", given.pixels, "Width and height in pixels; else inference.img_size");
  if (!app.parse(args)) return 0;
  const config::LoadedConfig loaded = config::load_config(app.run_options());
  auto run = train::plan_checkpoint_run(loaded, given.checkpoint);
  const Device device = parse_device(run.config.training.device, /*local_rank=*/0);
  train::compute_as_in_training(run, loaded, device);
  Options options = defaults_of(run.config);
  if (prompts.given()) options.prompts = given.prompts;
  if (out.given()) options.out = given.out;
  if (steps.given()) options.steps = given.steps;
  if (guidance.given()) options.guidance = given.guidance;
  if (seed.given()) options.seed = given.seed;
  if (batch.given()) options.batch = given.batch;
  if (size.given()) options.pixels = given.pixels;
  check(options);
  generate(run, options, device);
  return 0;
}

}  // namespace titanium::cli
