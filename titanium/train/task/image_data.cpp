#include "titanium/train/task/image_data.h"

#include "titanium/base/collect_errors.h"
#include "titanium/base/error.h"
#include "titanium/base/log.h"
#include "titanium/data/caption_tokenizer.h"
#include "titanium/data/dataset_registry.h"
#include "titanium/data/source_files.h"
#include "titanium/train/task/image_encoders.h"
#include "titanium/train/task/prepare_images.h"
#include "titanium/train/train_state.h"

namespace titanium::train {
namespace {

data::CaptionEncoder encoder_of(const data::CaptionTokenizer& tokenizer) {
  return [tokenizer](std::string_view caption) { return tokenizer.encode(caption); };
}

void refuse_prepared(const std::filesystem::path& path) {
  if (!data::is_prepared(path)) return;
  throw UsageError(fmt::format(
      "{} holds encodings of images that were prepared, not images. Set encoder.offline = true to train from them.",
      path.string()));
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
  return corpus;
}

// Where a data set stands in the configuration, for messages. Both are empty where it is the only one.
struct SourceName {
  std::string option, name;
};

void with_name_in_errors(const SourceName& source, const std::function<void()>& part) {
  if (source.option.empty()) return part();
  const auto sentence = [&](const Error& error) {
    return fmt::format("Source {} of {}: {}", source.name, source.option, error.what());
  };
  try {
    part();
  } catch (const UsageError& error) {
    throw UsageError(sentence(error));
  } catch (const Error& error) {
    throw Error(sentence(error));
  }
}

// Encodings that were prepared, or pictures: never the one for the other. Without a model its sizes are not checked.
void open_images(const JobConfig& config, const models::ImageModel* model, const SourceName& source,
                 data::CorpusOptions& corpus) {
  corpus.images = true;
  with_name_in_errors(source, [&] {
    if (!config.encoder.offline) return refuse_prepared(corpus.path);
    corpus.prepared = open_prepared(config, corpus.path);
    corpus.path = corpus.prepared->shards;
    if (model != nullptr) check_prepared_sizes(*corpus.prepared, *model);
  });
}

SourceName training_source(const data::CorpusOptions& corpus) {
  return corpus.in_mix ? SourceName{"training.sources", corpus.name} : SourceName{};
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

std::unique_ptr<data::ImageLoader> build_image_loader(const JobConfig& config, const models::ImageModel& model,
                                                      const std::vector<data::CaptionEncoder>& encoders,
                                                      const Reader& reader) {
  const config::Training& training = config.training;
  data::ImageLoaderOptions options = options_of(config, training.local_batch_size, training.dataloader, encoders);
  options.images.caption_dropout = training.classifier_free_guidance_prob;
  std::unique_ptr<data::ImageLoader> loader;
  if (training.sources.empty()) {
    const auto dataset = data::find_dataset(training.dataset, training.dataset_path, data::DatasetKind::kImages);
    data::CorpusOptions corpus = training_corpus(dataset, training, reader);
    open_images(config, &model, {}, corpus);
    loader = std::make_unique<data::ImageLoader>(corpus, options);
  } else {
    auto entries = mix_entries(training, reader, data::DatasetKind::kImages);
    for (auto& [corpus, at_end] : entries) open_images(config, &model, training_source(corpus), corpus);
    loader = std::make_unique<data::ImageLoader>(entries, mix_shares(training, entries), options);
  }
  for (const std::string& plan : loader->reading_plans()) log_info("Dataset {}", plan);
  return loader;
}

std::vector<ValidationSet<data::ImageLoader>> build_image_validation_loaders(
    const JobConfig& config, const models::ImageModel& model, const std::vector<data::CaptionEncoder>& encoders,
    const Reader& reader) {
  const config::Validation& validation = config.validation;
  data::ImageLoaderOptions options = options_of(config, validation.local_batch_size, validation.dataloader, encoders);
  options.images.infinite = validation.steps != -1;
  std::vector<ValidationSet<data::ImageLoader>> sets;
  for (const DataPlace& place : validation_places(validation)) {
    const auto dataset = data::find_dataset(place.dataset, place.path, data::DatasetKind::kImages);
    data::CorpusOptions corpus = corpus_of(dataset, config.training, validation.data_streams, reader);
    corpus.cache_bytes /= std::max<size_t>(validation.sources.size(), 1);
    open_images(config, &model, {place.option, place.source}, corpus);
    sets.push_back({place.source, std::make_unique<data::ImageLoader>(corpus, options)});
  }
  return sets;
}

std::unique_ptr<data::ImageLoader> build_image_preparation_loader(const JobConfig& config,
                                                                  const models::ImageModel& model,
                                                                  const std::vector<data::CaptionEncoder>& encoders,
                                                                  bool validation, int64_t batch) {
  JobConfig once = config;
  once.encoder.offline = false;
  once.validation.steps = -1;
  once.validation.local_batch_size = batch;
  const std::string section = validation ? "validation" : "training";
  if (!(validation ? config.validation.sources : config.training.sources).empty()) {
    throw UsageError(
        fmt::format("{}.sources has several data sets, and one is prepared at a time. Set --{}.sources=[] and "
                    "--{}.dataset_path to one of them.",
                    section, section, section));
  }
  once.validation.sources.clear();
  if (!validation) {
    once.validation.dataset = config.training.dataset;
    once.validation.dataset_path = config.training.dataset_path;
    once.validation.dataloader = config.training.dataloader;
    once.validation.data_streams = config.training.data_streams;
  }
  return std::move(build_image_validation_loaders(once, model, encoders, {.rank = 0, .ranks = 1}).front().loader);
}

std::vector<data::CorpusOptions> image_corpora(const JobConfig& config, const Reader& reader) {
  auto corpora = training_corpora(config.training, reader, data::DatasetKind::kImages);
  for (data::CorpusOptions& corpus : corpora) open_images(config, nullptr, training_source(corpus), corpus);
  return corpora;
}

void check_image_size(const JobConfig& config, const models::ImageModel& model) {
  const int64_t pixels = config.training.img_size, patch = model.patch_pixels();
  if (pixels % patch == 0) return;
  throw UsageError(fmt::format("training.img_size = {} is not a multiple of the {} pixels of a patch. Use {} or {}.",
                               pixels, patch, std::max<int64_t>(pixels / patch, 1) * patch,
                               (pixels / patch + 1) * patch));
}

std::vector<std::string> check_image_files(const JobConfig& config) {
  std::vector<std::string> sentences;
  for (const DataPlace& place : data_places(config)) {
    collect_errors(sentences, [&] {
      data::CorpusOptions corpus;
      data::Dataset dataset = data::locate_dataset(place.dataset, place.path, data::DatasetKind::kImages);
      corpus.path = dataset.path;
      open_images(config, nullptr, {place.option, place.source}, corpus);
      dataset.path = corpus.path;
      check_source_files(dataset, config.training);
    });
  }
  if (config.training.positions != "sequence") {
    sentences.push_back(
        fmt::format("training.positions = \"{}\" counts tokens inside documents, and this model reads images. Use "
                    "\"sequence\".",
                    config.training.positions));
  }
  if (config.encoder.sharded && config.encoder.on_cpu) {
    sentences.emplace_back(
        "encoder.sharded cuts encoders on the devices, and encoder.on_cpu keeps them in host memory. Use one of the "
        "two.");
  }
  if (config.encoder.offline) {
    if (draws_images(config.validation)) collect_errors(sentences, [&] { check_autoencoder(config); });
    return sentences;
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
