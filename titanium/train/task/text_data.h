// The data of the text task: which files, mixed how, read by whom.
#pragma once

#include "titanium/config/job_config.h"
#include "titanium/data/loader.h"
#include "titanium/data/tokenizer.h"

namespace titanium::train {

// Which share of the samples a rank reads.
struct Reader {
  int64_t rank = 0;
  int64_t ranks = 1;
};

// The tokenizer of model.hf_assets_path. None where that folder does not exist
// and all data of the run holds tokens. Throws UsageError as Tokenizer::load
// does, Error when the data cannot be found.
std::optional<data::Tokenizer> load_tokenizer(const JobConfig& config);

// The samples that a run trains on, of training.dataset or mixed from
// training.sources. Without a tokenizer the data must hold tokens.
std::unique_ptr<data::Loader> build_loader(const config::Training& training,
                                           const std::optional<data::Tokenizer>& tokenizer, const Reader& reader = {});

struct ValidationSet {
  std::string name;  // empty: validation.dataset
  std::unique_ptr<data::Loader> loader;
};
// validation.dataset, or each of validation.sources.
std::vector<ValidationSet> build_validation_loaders(const config::Validation& validation,
                                                    const config::Training& training,
                                                    const std::optional<data::Tokenizer>& tokenizer,
                                                    const Reader& reader);

// One sentence for each file of the run's data and tokenizer that is missing or
// broken.
std::vector<std::string> check_text_files(const JobConfig& config);

// The shares that the sources of a mix have of the samples, from the samples of
// the run on at which they change. Sizes are in bytes and count only where
// sources are weighed by them.
std::vector<data::MixturePiece> mixture_pieces(const config::Training& training, const std::vector<int64_t>& sizes,
                                               int64_t samples_per_step);

}  // namespace titanium::train
