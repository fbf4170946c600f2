#include "titanium/train/task/text_data.h"

#include <cmath>
#include <set>

#include "titanium/base/collect_errors.h"
#include "titanium/base/log.h"
#include "titanium/base/text/thousands.h"
#include "titanium/config/data_sources.h"
#include "titanium/data/dataset_registry.h"
#include "titanium/data/source_files.h"

namespace titanium::train {
namespace {

constexpr size_t kCacheBytes = size_t{256} << 20;  // that all sources of a run share
constexpr size_t kReaders = 64;                    // likewise

std::vector<DataPlace> places_of(const std::vector<config::Table>& tables, const std::string& option,
                                 const DataPlace& otherwise) {
  std::vector<DataPlace> places;
  for (const auto& source : config::data_sources(tables, option))
    places.push_back({source.dataset.value_or(source.name), source.path, option, source.name});
  return places.empty() ? std::vector{otherwise} : places;
}

bool has_only_tokens(const DataPlace& place) {
  const data::Dataset dataset = data::locate_dataset(place.dataset, place.path);
  if (dataset.at_hub) return false;  // all of these are texts
  return std::ranges::all_of(data::find_source_files(dataset.path, /*allow_empty_files=*/true),
                             [](const data::SourceFile& file) { return file.format->has_only_tokens(); });
}

std::optional<int32_t> end_of_document(const std::optional<data::Tokenizer>& tokenizer) {
  return tokenizer ? tokenizer->eos_id() : std::nullopt;
}

data::CorpusOptions corpus_options(const data::Dataset& dataset, const config::Training& training, int64_t streams,
                                   const Reader& reader) {
  return {.name = dataset.name,
          .path = dataset.path,
          .text_field = training.text_field,
          .skip_bad_records = training.skip_bad_records,
          .streams = streams,
          .rank = reader.rank,
          .ranks = reader.ranks,
          .cache_bytes = kCacheBytes,
          .token_dtype = training.token_dtype};
}

data::LoaderOptions loader_options(int64_t batch, const data::PackingOptions& packing,
                                   const config::DataLoader& options) {
  return {.batch = batch,
          .packing = packing,
          .num_workers = options.num_workers,
          .prefetch_factor = options.prefetch_factor.value_or(data::LoaderOptions{}.prefetch_factor)};
}

data::CorpusOptions mixed_corpus(const config::DataSource& source, const data::Dataset& dataset,
                                 const config::Training& training, size_t sources, const Reader& reader) {
  data::CorpusOptions corpus = training_corpus(dataset, training, reader);
  corpus.name = source.name;
  corpus.text_field = source.text_field.value_or(training.text_field);
  corpus.in_mix = true;
  corpus.cache_bytes = std::max(kCacheBytes / sources, size_t{1} << 20);
  corpus.max_readers = std::clamp<size_t>(kReaders / sources, 1, corpus.max_readers);
  corpus.most_lanes = std::max<int64_t>(training.data_lanes / static_cast<int64_t>(sources), 1);
  if (source.when_exhausted != "repeat") corpus.epochs = source.epochs.value_or(1);
  return corpus;
}

data::MixEntry mix_entry(const config::DataSource& source, const config::Training& training, size_t sources,
                         const Reader& reader, data::DatasetKind kind) {
  const data::Dataset dataset = data::find_dataset(source.dataset.value_or(source.name), source.path, kind);
  return {.corpus = mixed_corpus(source, dataset, training, sources, reader),
          .at_end = source.when_exhausted == "stop" ? data::AtEnd::kStop : data::AtEnd::kDrop};
}

int64_t bytes_of(const std::filesystem::path& path) {
  int64_t bytes = 0;
  for (const data::SourceFile& file : data::find_source_files(path, /*allow_empty_files=*/true)) bytes += file.size;
  return bytes;
}

void log_mix(const std::vector<config::DataSource>& sources, const std::vector<int64_t>& sizes,
             const std::vector<data::MixturePiece>& pieces) {
  double total = 0;
  for (const double weight : pieces[0].weights) total += weight;
  for (size_t k = 0; k < sources.size(); ++k)
    log_info("Source {}: {:.3g}% of the tokens, {} bytes, {} at its end", sources[k].name,
             100 * pieces[0].weights[k] / total, with_thousands_separators(sizes[k]), sources[k].when_exhausted);
  if (pieces.size() > 1) log_info("The shares change {} times during the run", pieces.size() - 1);
}

double weight_at(const config::DataSource& source, int64_t step) {
  double weight = source.weight.value_or(0);
  for (const config::ScheduledWeight& scheduled : source.weight_schedule)
    if (scheduled.step <= step) weight = scheduled.weight;
  return weight;
}

}  // namespace

data::CorpusOptions training_corpus(const data::Dataset& dataset, const config::Training& training,
                                    const Reader& reader) {
  data::CorpusOptions corpus = corpus_options(dataset, training, training.data_streams, reader);
  corpus.shuffle = training.shuffle;
  corpus.shuffle_seed = training.shuffle_seed;
  corpus.shuffle_window = training.shuffle_window;
  corpus.striping = data::striping_choice(training.data_striping);
  corpus.most_lanes = training.data_lanes;
  return corpus;
}

std::optional<data::Tokenizer> load_tokenizer(const JobConfig& config) {
  const std::string& folder = config.model.hf_assets_path;
  if (!std::filesystem::exists(folder) && std::ranges::all_of(data_places(config), has_only_tokens))
    return std::nullopt;
  return data::Tokenizer::load(folder, data::parse_special_in_text(config.model.special_tokens_in_text));
}

data::Encoder encoder_of(const std::optional<data::Tokenizer>& tokenizer) {
  if (!tokenizer) return nullptr;
  return [tokenizer = *tokenizer](std::string_view text) {
    return tokenizer.encode(text, /*add_bos=*/true, /*add_eos=*/true);
  };
}

std::vector<data::MixEntry> mix_entries(const config::Training& training, const Reader& reader,
                                        data::DatasetKind kind) {
  const auto sources = config::data_sources(training.sources, "training.sources");
  std::vector<data::MixEntry> entries;
  for (const config::DataSource& source : sources)
    entries.push_back(mix_entry(source, training, sources.size(), reader, kind));
  return entries;
}

std::vector<data::MixturePiece> mix_shares(const config::Training& training,
                                           const std::vector<data::MixEntry>& entries) {
  std::vector<int64_t> sizes;
  for (const data::MixEntry& entry : entries) sizes.push_back(bytes_of(entry.corpus.path));
  const int64_t ranks = entries[0].corpus.ranks;
  const int64_t samples_per_step =
      training.global_batch_size > 0 ? training.global_batch_size : training.local_batch_size * ranks;
  auto pieces = mixture_pieces(training, sizes, samples_per_step);
  log_mix(config::data_sources(training.sources, "training.sources"), sizes, pieces);
  return pieces;
}

std::vector<data::MixturePiece> mixture_pieces(const config::Training& training, const std::vector<int64_t>& sizes,
                                               int64_t samples_per_step) {
  const auto sources = config::data_sources(training.sources, "training.sources");
  std::set<int64_t> steps = {0};
  for (const config::DataSource& source : sources)
    for (const config::ScheduledWeight& scheduled : source.weight_schedule) steps.insert(scheduled.step);
  std::vector<data::MixturePiece> pieces;
  for (const int64_t step : steps) {
    data::MixturePiece& piece =
        pieces.emplace_back(data::MixturePiece{.first = step * samples_per_step, .weights = {}});
    for (size_t k = 0; k < sources.size(); ++k) {
      const auto& temperature = training.source_temperature;
      piece.weights.push_back(temperature ? std::pow(static_cast<double>(sizes[k]), 1 / *temperature)
                                          : weight_at(sources[k], step));
    }
  }
  return pieces;
}

std::unique_ptr<data::Loader> build_loader(const config::Training& training,
                                           const std::optional<data::Tokenizer>& tokenizer, const Reader& reader) {
  const auto options =
      loader_options(training.local_batch_size,
                     {.seq_len = training.seq_len, .end_of_document = end_of_document(tokenizer)}, training.dataloader);
  std::unique_ptr<data::Loader> loader;
  if (training.sources.empty()) {
    const data::Dataset dataset = data::find_dataset(training.dataset, training.dataset_path);
    loader = std::make_unique<data::Loader>(training_corpus(dataset, training, reader), encoder_of(tokenizer), options);
  } else {
    const auto entries = mix_entries(training, reader, data::DatasetKind::kTexts);
    loader = std::make_unique<data::Loader>(entries, mix_shares(training, entries), encoder_of(tokenizer), options);
  }
  for (const std::string& plan : loader->reading_plans()) log_info("Dataset {}", plan);
  return loader;
}

std::vector<data::CorpusOptions> training_corpora(const config::Training& training, const Reader& reader,
                                                  data::DatasetKind kind) {
  std::vector<data::CorpusOptions> corpora;
  const auto sources = config::data_sources(training.sources, "training.sources");
  for (const config::DataSource& source : sources) {
    const data::Dataset dataset = data::locate_dataset(source.dataset.value_or(source.name), source.path, kind);
    corpora.push_back(mixed_corpus(source, dataset, training, sources.size(), reader));
  }
  if (corpora.empty()) {
    const data::Dataset dataset = data::locate_dataset(training.dataset, training.dataset_path, kind);
    corpora.push_back(training_corpus(dataset, training, reader));
  }
  return corpora;
}

void check_source_files(const data::Dataset& dataset, const config::Training& training) {
  if (!dataset.at_hub) data::find_source_files(dataset.path, /*allow_empty_files=*/training.skip_bad_records);
}

std::vector<DataPlace> validation_places(const config::Validation& validation) {
  return places_of(validation.sources, "validation.sources", {validation.dataset, validation.dataset_path, "", ""});
}

std::vector<DataPlace> data_places(const JobConfig& config) {
  const config::Training& training = config.training;
  std::vector<DataPlace> places =
      places_of(training.sources, "training.sources", {training.dataset, training.dataset_path, "", ""});
  if (!config.validation.enable) return places;
  for (const DataPlace& place : validation_places(config.validation)) places.push_back(place);
  return places;
}

std::vector<ValidationSet<data::Loader>> build_validation_loaders(const config::Validation& validation,
                                                                  const config::Training& training,
                                                                  const std::optional<data::Tokenizer>& tokenizer,
                                                                  const Reader& reader) {
  const bool whole_set = validation.steps == -1;
  const data::PackingOptions packing = {.seq_len = validation.seq_len,
                                        .infinite = !whole_set,
                                        .keep_remainder = whole_set,
                                        .end_of_document = end_of_document(tokenizer)};
  const auto options = loader_options(validation.local_batch_size, packing, validation.dataloader);
  const auto loader_of = [&](const data::Dataset& dataset, const std::string& field) {
    data::CorpusOptions corpus = corpus_options(dataset, training, validation.data_streams, reader);
    corpus.text_field = field;
    corpus.cache_bytes /= std::max<size_t>(validation.sources.size(), 1);
    return std::make_unique<data::Loader>(corpus, encoder_of(tokenizer), options);
  };
  std::vector<ValidationSet<data::Loader>> sets;
  for (const auto& source : config::data_sources(validation.sources, "validation.sources")) {
    const data::Dataset dataset = data::find_dataset(source.dataset.value_or(source.name), source.path);
    sets.push_back({source.name, loader_of(dataset, source.text_field.value_or(training.text_field))});
  }
  if (sets.empty())
    sets.push_back(
        {"", loader_of(data::find_dataset(validation.dataset, validation.dataset_path), training.text_field)});
  return sets;
}

std::vector<std::string> check_text_files(const JobConfig& config) {
  std::vector<std::string> data_sentences;
  for (const DataPlace& place : data_places(config)) {
    collect_errors(data_sentences,
                   [&] { check_source_files(data::locate_dataset(place.dataset, place.path), config.training); });
  }
  std::vector<std::string> sentences;
  collect_errors(sentences, [&] {
    // Without its data nobody can say whether a run needs a tokenizer.
    if (data_sentences.empty()) {
      load_tokenizer(config);
    } else {
      data::Tokenizer::load(config.model.hf_assets_path);
    }
  });
  sentences.insert(sentences.end(), data_sentences.begin(), data_sentences.end());
  return sentences;
}

}  // namespace titanium::train
