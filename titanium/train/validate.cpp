#include "titanium/train/validate.h"

#include <ATen/ops/zeros.h>

#include "titanium/base/error.h"
#include "titanium/train/token_batch.h"

namespace titanium::train {

ValidationReport validate(models::LanguageModel& model, const data::Tokenizer& tokenizer, data::Loader& loader,
                          int64_t steps, Device device) {
  const c10::AutoGradMode no_grad(false);
  ValidationReport report;
  Tensor total = at::zeros({}, at::TensorOptions(at::kDouble).device(device));
  int64_t valid_tokens = 0;
  for (int64_t i = 0; steps == -1 || i < steps; ++i) {
    const std::optional<data::Batch> batch = loader.next();
    if (!batch) break;
    const LabelledBatch labelled = to_device(*batch, model, tokenizer, device);
    total.add_(model.loss(labelled.inputs, labelled.labels_BS, 1.0));
    valid_tokens += count_valid_tokens(*batch);
    report.tokens += batch->batch * batch->seq_len;
  }
  if (steps == -1) loader.rewind();
  TI_CHECK(valid_tokens > 0,
           "the validation set has no complete sample. Use a smaller validation.seq_len or more data.");
  report.loss = total.item<double>() / static_cast<double>(valid_tokens);
  return report;
}

}  // namespace titanium::train
