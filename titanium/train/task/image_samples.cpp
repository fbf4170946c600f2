#include "titanium/train/task/image_samples.h"

#include <c10/core/GradMode.h>

#include "titanium/base/log.h"
#include "titanium/train/inference/draw_images.h"

namespace titanium::train {
namespace {

// The first `count` rows.
DrawnCaptions drawn_captions(const data::ImageBatch& batch, int64_t count, const ImagePlace& place) {
  DrawnCaptions captions;
  captions.numbers.assign(batch.numbers.begin(), batch.numbers.begin() + count);
  captions.captions = captions_of(data::rows_of(batch, 0, count), place.encoders, place.model, place.device);
  return captions;
}

}  // namespace

std::vector<observe::ShownImage> draw_validation_images(const JobConfig& config, const ImagePlace& place,
                                                        const parallel::Mesh& mesh,
                                                        const std::vector<data::CaptionEncoder>& encoders,
                                                        int64_t step) {
  JobConfig whole = config;
  whole.validation.steps = -1;  // the set once, by every rank
  if (!whole.validation.sources.empty()) whole.validation.sources.resize(1);
  const config::Validation& options = config.validation;
  if (options.save_img_count == 0) return {};
  const auto sets = build_image_validation_loaders(whole, place.model, encoders, {.rank = 0, .ranks = 1});
  data::ImageLoader* const loader = sets.front().loader.get();
  const c10::AutoGradMode no_grad(false);
  const EncodedCaptions empty =
      captions_of(data::rows_of(loader->empty_batch(), 0, 1), place.encoders, place.model, place.device);
  DrawOptions draw{
      .pixels = config.training.img_size, .steps = options.denoising_steps, .guidance = {}, .seed = place.seed};
  if (options.enable_classifier_free_guidance) draw.guidance = options.classifier_free_guidance_scale;
  const std::filesystem::path folder = std::filesystem::path(config.job.dump_folder) / options.save_img_folder;
  std::vector<observe::ShownImage> shown;
  int64_t drawn = 0;
  while (options.save_img_count == -1 || drawn < options.save_img_count) {
    const auto batch = loader->next();
    if (!batch) break;
    const int64_t left = options.save_img_count == -1 ? batch->count : options.save_img_count - drawn;
    const int64_t count = std::min(batch->count, left);
    DrawnCaptions captions = drawn_captions(*batch, count, place);
    captions.empty = empty;
    const Tensor images =
        draw_images(place.model, *place.encoders.autoencoder, captions, draw, place.device, &mesh, place.share);
    for (int64_t i = 0; i < count; ++i, ++drawn) {
      if (mesh.world().rank() != 0) continue;
      observe::ShownImage image = write_image(folder / fmt::format("image_step{}_{}.png", step, drawn), images[i],
                                              batch->captions[static_cast<size_t>(i)]);
      if (shown.size() < kShownImages) shown.push_back(std::move(image));
    }
  }
  log_info("Drew {} images into {}", drawn, folder.string());
  return shown;
}

}  // namespace titanium::train
