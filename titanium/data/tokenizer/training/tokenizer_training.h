// Learning a byte-level BPE tokenizer from text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>
#include <vector>

namespace titanium::data {

struct TokenizerTraining {
  std::vector<std::filesystem::path> inputs;  // .jsonl (one object with a string field "text" per line) or plain text
  int64_t vocab_size = 0;                     // with the 256 bytes and the two special tokens
  int64_t min_pair_count = 2;                 // pairs that are rarer are not merged
  int threads = 2;                            // for splitting and counting words
};

// Called with the name of a phase, what is done of it and its size; often, always from the calling thread.
using TrainingProgress = std::function<void(std::string_view phase, int64_t done, int64_t total)>;

// Writes tokenizer.json and tokenizer_config.json into `folder`: Llama 3's splitting, ids 0 and 1 for
// <|begin_of_text|> and <|end_of_text|>, then the bytes, then the merges. The same inputs give the same files, whatever
// the number of threads: among pairs of equal count the one with the smaller ids is merged first. Returns the size of
// the vocabulary, which is smaller than asked for when the text has no more pairs to merge. Throws UsageError for
// inputs that are missing or wrong (with file and line) and for a vocabulary too small for the bytes.
int64_t train_tokenizer(const TokenizerTraining& training, const std::filesystem::path& folder,
                        const TrainingProgress& progress);

}  // namespace titanium::data
