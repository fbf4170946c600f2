// Loss and logits of a model on given token sequences.
#pragma once

#include <functional>
#include <vector>

#include "titanium/models/language_model.h"

namespace titanium::train {

struct Evaluation {
  double loss = 0;  // mean negative log-likelihood of each token but the first of its sequence
  double perplexity = 0;
  int64_t tokens = 0;  // that were predicted
};

// Runs each sequence on its own, cut into pieces of at most `max_seq_len` tokens. `on_logits`, if given, gets the index
// of the sequence and its logits [S, V] on the CPU in fp32. Throws Error if a token is outside the vocabulary or
// nothing is left to predict.
Evaluation evaluate(models::LanguageModel& model, const std::vector<std::vector<int64_t>>& sequences,
                    int64_t max_seq_len, Device device,
                    const std::function<void(size_t, const Tensor&)>& on_logits = nullptr);

}  // namespace titanium::train
