// Counting the words of text files, the first half of BPE training.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "titanium/data/tokenizer/pre_tokenizer.h"
#include "titanium/data/tokenizer/training/bpe_merges.h"

namespace titanium::data {

// The distinct words of all `inputs` with their counts, in the order of their bytes. A line of a .jsonl file is a
// record with a string field "text"; of other files every line, with its line break, is a text. `threads` split and
// count while the caller's thread reads. `progress` gets the bytes read so far. Throws UsageError with file and line
// for bad records.
std::vector<CountedWord> count_words(const std::vector<std::filesystem::path>& inputs,
                                     const PreTokenizer& pre_tokenizer, int threads,
                                     const std::function<void(int64_t bytes)>& progress);

}  // namespace titanium::data
