// Texts, packed into sequences of tokens; each token is predicted from those before it.
#pragma once

#include "titanium/data/loader.h"
#include "titanium/data/tokenizer.h"
#include "titanium/train/task/task.h"

namespace titanium::train {

// For language models. Reads training.dataset and validation.dataset with the tokenizer of model.hf_assets_path; where
// both hold tokens already, that folder need not exist. The weight of a batch is the number of its valid tokens: those
// that have a label. Training data begins again at its end.
TaskSpec text_task();

// Which share of the samples a rank reads.
struct Reader {
  int64_t rank = 0;
  int64_t ranks = 1;
};

// The samples that the task trains on, as they come from the data layer.
// Without a tokenizer the data must hold tokens.
std::unique_ptr<data::Loader> build_loader(const config::Training& training,
                                           const std::optional<data::Tokenizer>& tokenizer, const Reader& reader = {});

}  // namespace titanium::train
