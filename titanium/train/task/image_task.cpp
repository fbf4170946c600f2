#include "titanium/train/task/image_task.h"

#include "titanium/base/error.h"
#include "titanium/train/task/image_batch.h"
#include "titanium/train/task/image_data.h"
#include "titanium/train/task/image_samples.h"
#include "titanium/train/task/loader_source.h"
#include "titanium/train/train_state.h"

namespace titanium::train {
namespace {

constexpr int64_t kPixelsOfPatch = 16;  // of the published autoencoder: 8 for an element, 2 elements for a patch

int64_t patches_of(int64_t pixels) { return (pixels / kPixelsOfPatch) * (pixels / kPixelsOfPatch); }

class ImageSource : public LoaderSource<data::ImageLoader> {
 public:
  ImageSource(std::unique_ptr<data::ImageLoader> loader, const ImagePlace& place)
      : LoaderSource(std::move(loader)), place_(place) {}

  BatchPtr next() override {
    std::optional<data::ImageBatch> batch = loader().next();
    return batch ? make_image_batch(*std::move(batch), place_) : nullptr;
  }
  BatchPtr weightless() const override { return make_image_batch(loader().empty_batch(), place_); }

 private:
  const ImagePlace& place_;
};

// Every rank gets as many patches and as many tokens of the text.
const JobConfig& with_checked_sizes(const TaskContext& context) {
  const JobConfig& config = context.config;
  const models::ImageModel& model = models::as_image_model(context.model);
  const ops::SequenceShare& share = context.share;
  const int64_t pixels = config.training.img_size, patch = 2 * model.autoencoder().pixels();
  if (pixels % patch != 0) {
    throw UsageError(fmt::format("training.img_size = {} is not a multiple of the {} pixels of a patch. Use {} or {}.",
                                 pixels, patch, std::max<int64_t>(pixels / patch, 1) * patch,
                                 (pixels / patch + 1) * patch));
  }
  const int64_t patches = (pixels / patch) * (pixels / patch), text = config.encoder.max_t5_encoding_len;
  if (patches % share.chunks() != 0 || text % share.chunks() != 0) {
    throw UsageError(
        fmt::format("training.img_size = {} and encoder.max_t5_encoding_len = {} give {} patches and {} tokens, which "
                    "cannot both be "
                    "dealt to parallelism.context_parallel_degree = {} in {} equal chunks. Use multiples of {}.",
                    pixels, text, patches, text, share.ranks, share.chunks(), share.chunks()));
  }
  return config;
}

class ImageTask : public Task {
 public:
  explicit ImageTask(const TaskContext& context)
      : config_(with_checked_sizes(context)),
        mesh_(context.mesh),
        reader_{context.mesh.rank("batch"), context.mesh.size("batch")},
        captions_(caption_encoders(context.config)),
        encoders_(load_image_encoders(context.config, models::as_image_model(context.model), context.device)),
        training_{models::as_image_model(context.model), encoders_, context.share, context.device,
                  weight_seed(context.config.debug)},
        validation_(training_) {
    validation_.seed += 1;
    validation_.times = config_.validation.all_timesteps ? FlowTimes::kAll : FlowTimes::kStratified;
  }

  std::unique_ptr<BatchSource> training_data() const override {
    return std::make_unique<ImageSource>(build_image_loader(config_, captions_, reader_), training_);
  }
  std::unique_ptr<BatchSource> validation_data() const override {
    return std::make_unique<ImageSource>(build_image_validation_loader(config_, captions_, reader_), validation_);
  }
  void show_samples(int64_t step) const override {
    draw_validation_images(config_, validation_, mesh_, captions_, step);
  }
  int64_t tokens_per_image() const override {
    return patches_of(config_.training.img_size) + config_.encoder.max_t5_encoding_len;
  }
  double flops_per_token() const override { return training_.model.costs().size(tokens_per_image()).flops_per_token; }

 private:
  JobConfig config_;
  const parallel::Mesh& mesh_;
  Reader reader_;
  std::vector<data::CaptionEncoder> captions_;
  ImageEncoders encoders_;
  ImagePlace training_, validation_;
};

}  // namespace

TaskSpec image_task() {
  return {
      .name = "images",
      .make = [](const TaskContext& context) -> std::unique_ptr<Task> { return std::make_unique<ImageTask>(context); },
      .check_files = check_image_files,
      .tokens_of_sample =
          [](const JobConfig& config) {
            return patches_of(config.training.img_size) + config.encoder.max_t5_encoding_len;
          }};
}

}  // namespace titanium::train
