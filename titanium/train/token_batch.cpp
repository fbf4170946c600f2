#include "titanium/train/token_batch.h"

#include "titanium/base/error.h"
#include "titanium/tensor/host_copy.h"

namespace titanium::train {
namespace {

void check_vocabulary(const data::Batch& batch, int64_t vocabulary) {
  const int64_t largest = *std::max_element(batch.inputs.begin(), batch.inputs.end());
  TI_CHECK(largest < vocabulary,
           "the tokenizer made id {}, but the model's vocabulary has {} entries. Use the tokenizer that belongs to the "
           "model (model.hf_assets_path), or a flavor with a larger vocabulary.",
           largest, vocabulary);
}

}  // namespace

Tensor tokens_to_device(std::span<const int64_t> tokens, int64_t seq_len, Device device) {
  return copy_to_device(tokens, device).view({-1, seq_len});
}

LabelledBatch to_device(const data::Batch& batch, const models::LanguageModel& model, Device device,
                        const ops::SequenceShare& share) {
  check_vocabulary(batch, model.vocabulary());
  const auto share_to_device = [&](std::span<const int64_t> tokens) {
    return tokens_to_device(ops::share_of(tokens, batch.seq_len, share), batch.seq_len / share.ranks, device);
  };
  LabelledBatch labelled;
  labelled.inputs.tokens_BS = share_to_device(batch.inputs);
  labelled.labels_BS = share_to_device(batch.labels);
  if (model.attends_inside_documents()) {
    labelled.inputs.documents = ops::make_documents(batch.document_starts, batch.batch, batch.seq_len, device, share);
  }
  return labelled;
}

int64_t count_valid_tokens(const data::Batch& batch, const ops::SequenceShare& share) {
  const std::vector<int64_t> labels = ops::share_of(batch.labels, batch.seq_len, share);
  return std::count_if(labels.begin(), labels.end(), [](int64_t label) { return label != data::kIgnoreIndex; });
}

}  // namespace titanium::train
