// Text from a model, token by token, with a key/value cache.
#pragma once

#include <vector>

#include "titanium/models/language_model.h"

namespace titanium::train {

struct GenerateOptions {
  double temperature = 1.0;  // 0: always the most likely token
  int64_t top_k = 0;         // only the k most likely tokens; 0: all
  int64_t max_new_tokens = 32;
  int64_t batch = 1;  // continuations of the same prompt
  uint64_t seed = 0;  // with the same seed, the same text
  std::optional<int64_t> eos_id = std::nullopt;
};

// The new tokens of each continuation; one ends after the end-of-sequence token, which is included. `prompt` is not
// empty.
std::vector<std::vector<int64_t>> generate(models::LanguageModel& model, const std::vector<int64_t>& prompt,
                                           const GenerateOptions& options, Device device);

}  // namespace titanium::train
