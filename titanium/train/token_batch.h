// From the loader's token ids to what a model takes.
#pragma once

#include "titanium/data/loader.h"
#include "titanium/models/language_model.h"

namespace titanium::train {

struct LabelledBatch {
  models::TokenBatch inputs;
  Tensor labels_BS;
};

// Copies this rank's share of each sequence to `device` without waiting, and that of the documents if the model attends
// inside them. Throws Error if a token id is outside the model's vocabulary.
LabelledBatch to_device(const data::Batch& batch, const models::LanguageModel& model, Device device,
                        const ops::SequenceShare& share = {});

// [batch, seq_len] on `device`.
Tensor tokens_to_device(std::span<const int64_t> tokens, int64_t seq_len, Device device);

// Counts the labels in this rank's share that are not ignored.
int64_t count_valid_tokens(const data::Batch& batch, const ops::SequenceShare& share = {});

}  // namespace titanium::train
