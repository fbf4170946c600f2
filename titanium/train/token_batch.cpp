#include "titanium/train/token_batch.h"

#include <ATen/ops/empty.h>

#include <cstring>

#include "titanium/base/error.h"

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
  const auto rows = static_cast<int64_t>(tokens.size()) / seq_len;
  // Pinned memory, so that the copy is queued and nothing waits.
  Tensor host = at::empty({rows, seq_len}, at::TensorOptions(at::kLong).pinned_memory(device.is_cuda()));
  std::memcpy(host.data_ptr(), tokens.data(), tokens.size_bytes());
  return host.to(device, /*non_blocking=*/true);
}

LabelledBatch to_device(const data::Batch& batch, const models::LanguageModel& model, const data::Tokenizer& tokenizer,
                        Device device, const ops::SequenceShare& share) {
  check_vocabulary(batch, model.vocabulary());
  const auto share_to_device = [&](std::span<const int64_t> tokens) {
    return tokens_to_device(ops::share_of(tokens, batch.seq_len, share), batch.seq_len / share.ranks, device);
  };
  LabelledBatch labelled;
  labelled.inputs.tokens_BS = share_to_device(batch.inputs);
  labelled.labels_BS = share_to_device(batch.labels);
  if (model.attends_inside_documents()) {
    TI_CHECK(
        tokenizer.eos_id().has_value(),
        "attention inside documents needs an end-of-sequence token, and the tokenizer has none. Name it as eos_token "
        "in tokenizer_config.json, or use model.attn_mask_type = \"causal\".");
    labelled.inputs.documents = ops::find_documents(batch.inputs, batch.seq_len, *tokenizer.eos_id(), device, share);
  }
  return labelled;
}

int64_t count_valid_tokens(const data::Batch& batch, const ops::SequenceShare& share) {
  const std::vector<int64_t> labels = ops::share_of(batch.labels, batch.seq_len, share);
  return std::count_if(labels.begin(), labels.end(), [](int64_t label) { return label != data::kIgnoreIndex; });
}

}  // namespace titanium::train
