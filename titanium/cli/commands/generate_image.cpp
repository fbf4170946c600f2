#include "titanium/cli/generate_image.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "titanium/base/error.h"
#include "titanium/base/file.h"
#include "titanium/cli/arguments.h"
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

void check(const Options& options) {
  const auto require = [](bool good, const char* name, auto value, const char* expectation) {
    if (!good) throw UsageError(fmt::format("generate-image: --{} {} should be {}.", name, value, expectation));
  };
  require(options.steps >= 1, "steps", options.steps, "at least 1");
  require(options.batch >= 1, "batch", options.batch, "at least 1");
  require(options.pixels >= 16 && options.pixels % 16 == 0, "size", options.pixels, "a multiple of 16");
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

train::DrawnCaptions captions_of(const std::vector<data::CaptionEncoder>& encoders,
                                 const std::vector<std::string>& prompts, size_t first, size_t count) {
  train::DrawnCaptions captions;
  for (const data::CaptionEncoder& encoder : encoders) {
    std::vector<int32_t>& tokens = captions.tokens.emplace_back();
    for (size_t i = first; i < first + count; ++i) {
      const std::vector<int32_t> ids = encoder(prompts[i]);
      tokens.insert(tokens.end(), ids.begin(), ids.end());
    }
    captions.empty_tokens.push_back(encoder(""));
  }
  for (size_t i = first; i < first + count; ++i) captions.numbers.push_back(static_cast<int64_t>(i));
  return captions;
}

void generate(const train::CheckpointRun& run, const Options& options) {
  const std::vector<std::string> prompts = read_prompts(options.prompts);
  const Device device = parse_device(run.config.training.device, /*local_rank=*/0);
  const auto captions = train::caption_encoders(run.config);
  const auto loaded = train::load_any_model(run, device);
  models::ImageModel& model = models::as_image_model(*loaded);
  const train::ImageEncoders encoders = train::load_image_encoders(run.config, model, device);
  train::DrawOptions draw{.pixels = options.pixels, .steps = options.steps, .guidance = {}, .seed = options.seed};
  if (options.guidance > 0) draw.guidance = options.guidance;
  for (size_t first = 0; first < prompts.size(); first += static_cast<size_t>(options.batch)) {
    const size_t count = std::min(static_cast<size_t>(options.batch), prompts.size() - first);
    const Tensor images =
        train::draw_images(model, encoders, captions_of(captions, prompts, first, count), draw, device);
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
  CLI::App app(
      "Draws an image for each line of a file with the model of a checkpoint, and writes them as PNG. All options of\n"
      "titanium train are taken too: those of [encoder] name the encoders of texts and the autoencoder. The "
      "computation\n"
      "is in float32 unless --training.mixed_precision_param says otherwise.",
      "generate-image");
  app.allow_extras();
  app.add_option("--checkpoint", given.checkpoint, "Distributed checkpoint, safetensors or torch.save file")
      ->required();
  const auto* prompts = app.add_option("--prompts", given.prompts, "One prompt per line; else inference.prompts_path");
  const auto* out = app.add_option("--out", given.out, "Folder; else inference.save_img_folder in job.dump_folder");
  const auto* steps = app.add_option("--steps", given.steps, "From noise to image; else validation.denoising_steps");
  const auto* guidance = app.add_option("--guidance", given.guidance,
                                        "Strength of classifier-free guidance, 0: none; else what [validation] says");
  const auto* seed = app.add_option("--seed", given.seed, "The same seed gives the same images; else debug.seed");
  const auto* batch = app.add_option("--batch", given.batch, "Prompts at once; else inference.local_batch_size");
  const auto* size = app.add_option("--size", given.pixels, "Width and height in pixels; else inference.img_size");
  if (!parse_arguments(app, args)) return 0;
  const auto run = train::plan_checkpoint_run(config::load_config(app.remaining()), given.checkpoint);
  Options options = defaults_of(run.config);
  if (*prompts) options.prompts = given.prompts;
  if (*out) options.out = given.out;
  if (*steps) options.steps = given.steps;
  if (*guidance) options.guidance = given.guidance;
  if (*seed) options.seed = given.seed;
  if (*batch) options.batch = given.batch;
  if (*size) options.pixels = given.pixels;
  check(options);
  generate(run, options);
  return 0;
}

}  // namespace titanium::cli
