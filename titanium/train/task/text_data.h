// The data of the text task: which files, mixed how, read by whom.
#pragma once

#include "titanium/config/job_config.h"
#include "titanium/data/dataset_registry.h"
#include "titanium/data/loader.h"
#include "titanium/data/tokenizer.h"

namespace titanium::train {

// Which share of the samples a rank reads.
struct Reader {
  int64_t rank = 0;
  int64_t ranks = 1;
};

// The tokenizer of model.hf_assets_path. None where that folder does not exist and all data of the run holds tokens.
// Throws UsageError as Tokenizer::load does, Error when the data cannot be found.
std::optional<data::Tokenizer> load_tokenizer(const JobConfig& config);

// What it makes of a text, with BOS and EOS. Nothing without a tokenizer: then the data holds tokens.
data::Encoder encoder_of(const std::optional<data::Tokenizer>& tokenizer);

// The samples that a run trains on, of training.dataset or mixed from training.sources. Without a tokenizer the data
// must hold tokens.
std::unique_ptr<data::Loader> build_loader(const config::Training& training,
                                           const std::optional<data::Tokenizer>& tokenizer, const Reader& reader = {});

// What a run trains on, of one kind, in the order of the sources: one without training.sources.
std::vector<data::CorpusOptions> training_corpora(const config::Training& training, const Reader& reader,
                                                  data::DatasetKind kind);

// Where a run reads: `dataset` and `path` as locate_dataset takes them.
struct DataPlace {
  std::string dataset;
  std::optional<std::string> path;
  std::string option;  // training.sources or validation.sources; empty: one data set alone
  std::string source;  // its name there
};
// Throws Error as data::find_source_files does. What the registry has at the hub is not asked for: like the hub's
// models it is found when the run starts.
void check_source_files(const data::Dataset& dataset, const config::Training& training);
// validation.dataset, or each of validation.sources.
std::vector<DataPlace> validation_places(const config::Validation& validation);
// All data of the run; that of validation where it is enabled.
std::vector<DataPlace> data_places(const JobConfig& config);

template <typename Loader>
struct ValidationSet {
  std::string name;  // empty: validation.dataset
  std::unique_ptr<Loader> loader;
};
// validation.dataset, or each of validation.sources.
std::vector<ValidationSet<data::Loader>> build_validation_loaders(const config::Validation& validation,
                                                                  const config::Training& training,
                                                                  const std::optional<data::Tokenizer>& tokenizer,
                                                                  const Reader& reader);

// One sentence for each file of the run's data and tokenizer that is missing or broken.
std::vector<std::string> check_text_files(const JobConfig& config);

// A data set as a rank reads it in training: its streams, shuffle and striping.
data::CorpusOptions training_corpus(const data::Dataset& dataset, const config::Training& training,
                                    const Reader& reader);

// The sources of training.sources, of one kind, as a rank reads them.
std::vector<data::MixEntry> mix_entries(const config::Training& training, const Reader& reader, data::DatasetKind kind);
// Their shares of the samples, with the sizes of the files at their paths. Logs both.
std::vector<data::MixturePiece> mix_shares(const config::Training& training,
                                           const std::vector<data::MixEntry>& entries);

// The shares that the sources of a mix have of the samples, from the samples of the run on at which they change. Sizes
// are in bytes and count only where sources are weighed by them.
std::vector<data::MixturePiece> mixture_pieces(const config::Training& training, const std::vector<int64_t>& sizes,
                                               int64_t samples_per_step);

}  // namespace titanium::train
