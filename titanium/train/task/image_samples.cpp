#include "titanium/train/task/image_samples.h"

#include "titanium/base/log.h"
#include "titanium/train/inference/draw_images.h"

namespace titanium::train {
namespace {

// The first `count` rows.
DrawnCaptions captions_of(const data::ImageBatch& batch, int64_t count,
                          const std::vector<data::CaptionEncoder>& encoders) {
  DrawnCaptions captions;
  captions.numbers.assign(batch.numbers.begin(), batch.numbers.begin() + count);
  for (size_t i = 0; i < encoders.size(); ++i) {
    const auto length = static_cast<int64_t>(batch.tokens[i].size()) / batch.samples;
    captions.tokens.emplace_back(batch.tokens[i].begin(), batch.tokens[i].begin() + count * length);
    captions.empty_tokens.push_back(encoders[i](""));
  }
  return captions;
}

}  // namespace

void draw_validation_images(const JobConfig& config, const ImagePlace& place, const parallel::Mesh& mesh,
                            const std::vector<data::CaptionEncoder>& encoders, int64_t step) {
  JobConfig whole = config;
  whole.validation.steps = -1;  // the set once, by every rank
  const config::Validation& options = config.validation;
  if (options.save_img_count == 0) return;
  const auto loader = build_image_validation_loader(whole, encoders, {.rank = 0, .ranks = 1});
  DrawOptions draw{
      .pixels = config.training.img_size, .steps = options.denoising_steps, .guidance = {}, .seed = place.seed};
  if (options.enable_classifier_free_guidance) draw.guidance = options.classifier_free_guidance_scale;
  const std::filesystem::path folder = std::filesystem::path(config.job.dump_folder) / options.save_img_folder;
  int64_t drawn = 0;
  while (options.save_img_count == -1 || drawn < options.save_img_count) {
    const auto batch = loader->next();
    if (!batch) break;
    const int64_t left = options.save_img_count == -1 ? batch->count : options.save_img_count - drawn;
    const int64_t count = std::min(batch->count, left);
    const Tensor images = draw_images(place.model, place.encoders, captions_of(*batch, count, encoders), draw,
                                      place.device, &mesh, place.share);
    for (int64_t i = 0; i < count; ++i, ++drawn) {
      if (mesh.world().rank() != 0) continue;
      write_image(folder / fmt::format("image_step{}_{}.png", step, drawn), images[i],
                  batch->captions[static_cast<size_t>(i)]);
    }
  }
  log_info("Drew {} images into {}", drawn, folder.string());
}

}  // namespace titanium::train
