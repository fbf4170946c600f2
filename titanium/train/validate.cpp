#include "titanium/train/validate.h"

#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "titanium/base/error.h"
#include "titanium/train/token_batch.h"

namespace titanium::train {
namespace {

// The next batch of this rank; nothing when the data of all ranks has ended. All ranks run the same number of batches,
// because they compute together.
std::optional<data::Batch> next_batch(const TrainState& run, data::Loader& loader) {
  std::optional<data::Batch> batch = loader.next();
  const Tensor anyone = at::scalar_tensor(batch ? 1 : 0, at::kLong);
  run.mesh->reduce("batch", anyone, comm::Reduce::kMax);
  if (anyone.item<int64_t>() == 0) return std::nullopt;
  const config::Validation& validation = run.config.validation;
  return batch ? std::move(batch) : data::ignored_batch(validation.local_batch_size, validation.seq_len);
}

}  // namespace

ValidationReport validate(const TrainState& run, data::Loader& loader) {
  const c10::AutoGradMode no_grad(false);
  const int64_t steps = run.config.validation.steps;
  ValidationReport report;
  const Tensor total = at::zeros({}, at::TensorOptions(at::kDouble).device(run.device));
  const Tensor valid_tokens = at::zeros({}, at::kLong);
  for (int64_t i = 0; steps == -1 || i < steps; ++i) {
    const std::optional<data::Batch> batch = next_batch(run, loader);
    if (!batch) break;
    total.add_(run.executor->loss(*batch));
    valid_tokens.add_(count_valid_tokens(*batch));
    report.tokens += batch->batch * batch->seq_len;
  }
  if (steps == -1) loader.rewind();
  for (const char* axis : {"loss", "pp"}) run.mesh->reduce(axis, total, comm::Reduce::kSum);
  run.mesh->reduce("batch", valid_tokens, comm::Reduce::kSum);
  TI_CHECK(valid_tokens.item<int64_t>() > 0,
           "the validation set has no complete sample. Use a smaller validation.seq_len or more data.");
  report.loss = total.item<double>() / static_cast<double>(valid_tokens.item<int64_t>());
  return report;
}

}  // namespace titanium::train
