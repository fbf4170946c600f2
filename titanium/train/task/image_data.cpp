#include "titanium/train/task/image_data.h"

#include "titanium/base/collect_errors.h"
#include "titanium/base/error.h"
#include "titanium/data/caption_tokenizer.h"
#include "titanium/data/dataset_registry.h"
#include "titanium/data/source_files.h"
#include "titanium/train/task/image_encoders.h"
#include "titanium/train/train_state.h"

namespace titanium::train {
namespace {

data::CaptionEncoder encoder_of(const data::CaptionTokenizer& tokenizer) {
  return [tokenizer](std::string_view caption) { return tokenizer.encode(caption); };
}

data::CorpusOptions corpus_of(const data::Dataset& dataset, const config::Training& training, int64_t streams,
                              const Reader& reader) {
  data::CorpusOptions corpus;
  corpus.name = dataset.name;
  corpus.path = dataset.path;
  corpus.skip_bad_records = training.skip_bad_records;
  corpus.streams = streams;
  corpus.rank = reader.rank;
  corpus.ranks = reader.ranks;
  corpus.images = true;
  return corpus;
}

data::ImageLoaderOptions options_of(const JobConfig& config, int64_t batch, const config::DataLoader& loader,
                                    const std::vector<data::CaptionEncoder>& encoders) {
  data::ImageLoaderOptions options;
  options.batch = batch;
  options.images.size = config.training.img_size;
  options.images.seed = static_cast<int64_t>(weight_seed(config.debug));
  options.images.encoders = encoders;
  options.num_workers = loader.num_workers;
  options.prefetch_factor = loader.prefetch_factor.value_or(options.prefetch_factor);
  return options;
}

}  // namespace

std::vector<data::CaptionEncoder> caption_encoders(const JobConfig& config) {
  using data::CaptionTokenizer;
  const config::Encoder& encoder = config.encoder;
  if (config.training.test_mode) {
    const std::string& folder = config.model.hf_assets_path;
    return {encoder_of(CaptionTokenizer::test(folder, encoder.max_t5_encoding_len)),
            encoder_of(CaptionTokenizer::test(folder, kPooledTextTokens))};
  }
  const auto text = encoder_folder(encoder.t5_encoder, /*with_weights=*/false);
  const auto pooled = encoder_folder(encoder.clip_encoder, /*with_weights=*/false);
  return {encoder_of(CaptionTokenizer::t5(text, encoder.max_t5_encoding_len)),
          encoder_of(CaptionTokenizer::clip(pooled, kPooledTextTokens))};
}

std::unique_ptr<data::ImageLoader> build_image_loader(const JobConfig& config,
                                                      const std::vector<data::CaptionEncoder>& encoders,
                                                      const Reader& reader) {
  const config::Training& training = config.training;
  const auto dataset = data::find_dataset(training.dataset, training.dataset_path, data::DatasetKind::kImages);
  data::CorpusOptions corpus = corpus_of(dataset, training, training.data_streams, reader);
  corpus.shuffle = training.shuffle;
  corpus.shuffle_seed = training.shuffle_seed;
  corpus.shuffle_window = training.shuffle_window;
  data::ImageLoaderOptions options = options_of(config, training.local_batch_size, training.dataloader, encoders);
  options.images.caption_dropout = training.classifier_free_guidance_prob;
  return std::make_unique<data::ImageLoader>(corpus, options);
}

std::unique_ptr<data::ImageLoader> build_image_validation_loader(const JobConfig& config,
                                                                 const std::vector<data::CaptionEncoder>& encoders,
                                                                 const Reader& reader) {
  const config::Validation& validation = config.validation;
  const auto dataset = data::find_dataset(validation.dataset, validation.dataset_path, data::DatasetKind::kImages);
  data::ImageLoaderOptions options = options_of(config, validation.local_batch_size, validation.dataloader, encoders);
  options.images.infinite = validation.steps != -1;
  return std::make_unique<data::ImageLoader>(corpus_of(dataset, config.training, validation.data_streams, reader),
                                             options);
}

std::vector<std::string> check_image_files(const JobConfig& config) {
  std::vector<std::string> sentences;
  const auto look_for = [&](const std::string& name, const std::optional<std::string>& path) {
    collect_errors(sentences, [&] {
      data::find_source_files(data::locate_dataset(name, path, data::DatasetKind::kImages).path,
                              /*allow_empty_files=*/config.training.skip_bad_records);
    });
  };
  look_for(config.training.dataset, config.training.dataset_path);
  if (config.validation.enable) look_for(config.validation.dataset, config.validation.dataset_path);
  if (!config.training.sources.empty() || !config.validation.sources.empty()) {
    sentences.emplace_back(
        "training.sources and validation.sources mix texts, and this model reads images of one data set. Use "
        "training.dataset and validation.dataset.");
  }
  // What is at the hub is fetched when the run starts.
  collect_errors(sentences, [&] {
    const bool all_here = is_encoder_here(config.encoder.t5_encoder) && is_encoder_here(config.encoder.clip_encoder);
    if (config.training.test_mode || all_here) caption_encoders(config);
  });
  collect_errors(sentences, [&] { check_autoencoder(config); });
  return sentences;
}

}  // namespace titanium::train
