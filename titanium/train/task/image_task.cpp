#include "titanium/train/task/image_task.h"

#include "titanium/base/error.h"
#include "titanium/train/task/image_batch.h"
#include "titanium/train/task/image_data.h"
#include "titanium/train/task/image_samples.h"
#include "titanium/train/task/loader_source.h"
#include "titanium/train/train_state.h"

namespace titanium::train {
namespace {

// Patches of an image and tokens of its text.
int64_t tokens_of(const JobConfig& config, const models::ImageModel& model) {
  const int64_t side = config.training.img_size / model.patch_pixels();
  return side * side + config.encoder.max_t5_encoding_len;
}

class ImageSource : public LoaderSource<data::ImageLoader> {
 public:
  // `tokens` are those of a sample.
  ImageSource(std::unique_ptr<data::ImageLoader> loader, const ImagePlace& place, int64_t tokens)
      : LoaderSource(std::move(loader)), place_(place), tokens_(tokens) {}

  BatchPtr next() override {
    std::optional<data::ImageBatch> batch = loader().next();
    return batch ? make_image_batch(*std::move(batch), place_) : nullptr;
  }
  BatchPtr weightless() const override { return make_image_batch(loader().empty_batch(), place_); }
  std::vector<SourceTokens> tokens_by_source() const override {
    std::vector<SourceTokens> tokens;
    const auto samples = loader().samples_by_source();
    if (samples.size() == 1) return tokens;
    for (const auto& [name, count] : samples) tokens.push_back({name, count * tokens_});
    return tokens;
  }

 private:
  const ImagePlace& place_;
  int64_t tokens_;
};

// Every rank gets as many patches and as many tokens of the text.
const JobConfig& with_checked_sizes(const TaskContext& context) {
  const JobConfig& config = context.config;
  const models::ImageModel& model = models::as_image_model(context.model);
  const ops::SequenceShare& share = context.share;
  const int64_t pixels = config.training.img_size, patch = model.patch_pixels();
  check_image_size(config, model);
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
        captions_(context.config.encoder.offline ? std::vector<data::CaptionEncoder>()
                                                 : caption_encoders(context.config)),
        encoders_(
            load_encoders_of_run(context.config, models::as_image_model(context.model), context.device, context.mesh)),
        training_{models::as_image_model(context.model), encoders_, context.share, context.device,
                  weight_seed(context.config.debug)},
        validation_(training_) {
    if (config_.training.flow_times == "logit_normal") training_.times = FlowTimes::kLogitNormal;
    validation_.seed += 1;
    validation_.times = config_.validation.all_timesteps ? FlowTimes::kAll : FlowTimes::kStratified;
  }

  std::unique_ptr<BatchSource> training_data() const override {
    return source_of(build_image_loader(config_, training_.model, captions_, reader_), training_);
  }
  std::unique_ptr<BatchSource> validation_data() const override { return std::move(validation_sets().front().data); }
  std::vector<ValidationData> validation_sets() const override {
    std::vector<ValidationData> sets;
    for (auto& [name, loader] : build_image_validation_loaders(config_, validation_.model, captions_, reader_))
      sets.push_back({name, source_of(std::move(loader), validation_)});
    return sets;
  }
  std::vector<observe::ShownImage> show_samples(int64_t step) const override {
    return draw_validation_images(config_, validation_, mesh_, captions_, step);
  }
  int64_t tokens_per_image() const override { return tokens_of(config_, training_.model); }
  double flops_per_token() const override { return training_.model.costs().size(tokens_per_image()).flops_per_token; }

 private:
  std::unique_ptr<BatchSource> source_of(std::unique_ptr<data::ImageLoader> loader, const ImagePlace& place) const {
    return std::make_unique<ImageSource>(std::move(loader), place, tokens_per_image());
  }

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
      .training_corpora = [](const JobConfig& config,
                             int64_t readers) { return image_corpora(config, {.rank = 0, .ranks = readers}); },
      .check_files = check_image_files,
      .tokens_of_sample = [](const JobConfig& config,
                             const models::Model& model) { return tokens_of(config, models::as_image_model(model)); },
      .frozen_memory =
          [](const JobConfig& config, const models::Model& model, const parallel::ParallelDims& dims) {
            return image_encoder_memory(config, models::as_image_model(model), dims);
          }};
}

}  // namespace titanium::train
