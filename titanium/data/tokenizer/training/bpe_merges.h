// The heart of BPE training: which pairs to merge.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "titanium/data/tokenizer/model/bpe.h"

namespace titanium::data {

struct CountedWord {
  std::string bytes;
  int64_t count;
};

// Tokens in the order of their ids, and merges in the order in which they were learned. Tokens are bytes here.
struct LearnedMerges {
  std::vector<std::string> tokens;
  std::vector<std::pair<TokenId, TokenId>> merges;
};

// Merges the most frequent pair of neighbours, again and again, until there are `vocab_size` tokens or no pair occurs
// `min_pair_count` times. `first_tokens` begin the vocabulary and hold each of the 256 bytes as a token; the last of
// two equal tokens counts. Deterministic: ties go to the smaller ids, the order of `words` does not matter.
LearnedMerges learn_merges(const std::vector<CountedWord>& words, std::vector<std::string> first_tokens,
                           size_t vocab_size, int64_t min_pair_count,
                           const std::function<void(size_t tokens)>& progress);

}  // namespace titanium::data
